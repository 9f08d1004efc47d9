from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gguf_oracle import unpacked
from infinipot.core.pot import Pot
from infinipot.core.rows import Rows
from infinipot.engine import Engine, open_engine
from infinipot.errors import ConfigError, InfiniPotError, ModelError
from infinipot.hf.cuda.load import filler
from infinipot.hf.gguf import described, load_gguf
from infinipot.hf.loading import load
from infinipot.hf.model import HFModel
from infinipot.hf.packed import choice, ggml, modules
from infinipot.hf.packed.blocks import NARROW, packed
from infinipot.hf.packed.blocks import unpacked as unpack
from infinipot.hf.packed.gguf_file import Weights
from infinipot.hf.packed.gguf_index import Index
from infinipot.hf.packed.hub import load_rounded
from infinipot.hf.packed.integers import LARGEST, has_int8, weight_limit
from infinipot.hf.packed.modules import PackedEmbedding, PackedHead, PackedLinear, PackedMlp, PackedNorm
from infinipot.hf.speed.products import has_bfloat16
from infinipot.models import memory
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from toy_release import write_gguf

needs_ggml = pytest.mark.skipif(isinstance(ggml.find(), str), reason=f"no ggml: {ggml.find()}")
CPU = torch.device("cpu")


MANY = modules.FEW + 24  # tokens that are multiplied exactly


def tokens(count: int) -> torch.Tensor:
    return 3 + torch.arange(count) % 40


@pytest.fixture(params=["Q8_0", "Q4_1"])
def quantised(request: Any, home: Path, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, request.param)
    return path


def rounded(model: Any, kind: int) -> Any:
    """The model with every matrix as it is in a packed format."""
    for weight in model.parameters():
        if weight.ndim == 2:
            weight.data = unpack(packed(weight.data, kind))
    return model


def failing(*names: Any, **options: Any) -> str:
    with pytest.raises(InfiniPotError) as caught:
        load(*names, device="cpu", **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_full_weights_are_those_of_transformers_bit_by_bit(quantised: Path) -> None:
    ours, _, _ = load_gguf(quantised, torch.float32)
    found = dict(ours.state_dict())
    for name, weight in unpacked(quantised)[0].state_dict().items():
        assert torch.equal(found.pop(name), weight), name
    assert not found


@needs_ggml
def test_packed_weights_compute_what_full_ones_do(quantised: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "INNER", 32)  # of many tokens, some wide columns at a time
    loaded = load(str(quantised), device="cpu", weights="auto")
    layer = loaded.model.model.layers[0]
    assert isinstance(layer.self_attn.q_proj, PackedLinear)
    assert isinstance(loaded.model.lm_head, PackedHead)
    assert isinstance(layer.mlp, PackedMlp)  # one graph for few tokens
    assert isinstance(layer.input_layernorm, PackedNorm)
    for count in (1, 3, MANY):
        x = torch.randn(1, count, 32)
        with torch.no_grad():
            assert torch.allclose(layer.mlp(x), layer.mlp.inner(x), atol=1e-4)
    assert isinstance(loaded.model.get_input_embeddings(), PackedEmbedding)
    theirs, _ = unpacked(quantised)
    for count, most in ((MANY, 1e-5), (4, 0.05)):  # many tokens are exact, few are rounded
        ids = tokens(count)[None]
        with torch.no_grad():
            ours, wanted = loaded.model(ids).logits, theirs(ids).logits
        assert float((ours - wanted).norm() / wanted.norm()) < most


@needs_ggml
def test_torchs_default_dtype_changes_nothing(tiny_gguf: Path, tmp_path: Path) -> None:
    """What the model of a program that computes in float64 elsewhere answers."""
    found = []
    for kind in (torch.float32, torch.float64):
        torch.set_default_dtype(kind)
        try:
            model = HFModel(load(str(tiny_gguf), device="cpu", weights="int8").model)
            assert model.steps is not None  # all parts are those of one graph
            pot = model.new_pot(200, 100)
            found.append([model.forward(tokens(count)[None], pot) for count in (MANY, 4, 1, 1)])
        finally:
            torch.set_default_dtype(torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@needs_ggml
def test_nothing_of_a_packed_weight_is_held_as_floats(quantised: Path) -> None:
    model = load(str(quantised), device="cpu", weights="auto").model
    assert {tuple(weight.shape) for weight in model.parameters()} == {(32,)}  # norms
    assert not any(weight.is_meta for weight in model.parameters())


@needs_ggml
def test_engine_reads_and_says_how_weights_are_held(quantised: Path) -> None:
    engine = open_engine(str(quantised), device="cpu", dtype="float32")
    name = "Q8_0" if "Q8_0" in engine.note else "Q4_1"
    assert engine.note.split("; ")[0] == f"weights stay {name}, as in the file"
    full = open_engine(str(quantised), device="cpu", weights="full", dtype="float32")
    assert (full.note, full.weights) == ("", "float32")
    assert engine.sample == full.sample  # a pot of one is a pot of the other
    hidden = []
    for one in (engine, full):
        reader = one.reader(Recipe.named(capacity=200, format=one.format))
        hidden.append(reader.session.write(tokens(MANY).tolist()))
        assert "".join(reader.ask("hello?", Generation(3)))
    assert torch.allclose(*hidden, atol=1e-4)  # a chunk is read exactly


@needs_ggml
@pytest.mark.skipif(not has_int8(), reason="needs AVX2 and oneDNN")
@pytest.mark.parametrize("wide", [False, True])
def test_a_chunk_is_rounded_where_the_processor_multiplies_few_bits(
    wide: bool, quantised: Path, monkeypatch
) -> None:
    if wide:
        monkeypatch.setattr(modules, "WIDE", 32)
    exact, rounded = (open_engine(str(quantised), device="cpu", dtype=dtype) for dtype in ("float32", "auto"))
    kind = torch.int8 if wide else torch.bfloat16 if has_bfloat16() else None
    assert (exact.dtype, rounded.dtype) == ("float32", "mixed" if kind else "float32")
    assert (exact.model.head.rounds, rounded.model.head.rounds) == (None, kind)
    if kind is None:
        return
    hidden = []
    for one in (exact, rounded):
        reader = one.reader(Recipe.named(capacity=200, format=one.format))
        hidden.append(reader.session.write(tokens(MANY).tolist()).clone())
    bound = 0.05 if weight_limit() == LARGEST else 0.08  # in 7 bits, where there is no VNNI
    assert 0 < (hidden[0] - hidden[1]).norm() / hidden[0].norm() < bound


@needs_ggml
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_a_folder_is_rounded_while_it_is_loaded(weights: str, quantised: Path, tmp_path: Path) -> None:
    theirs, tokenizer = unpacked(quantised)
    for part in (theirs, tokenizer):
        part.save_pretrained(tmp_path / "folder")
    loaded = load(str(tmp_path / "folder"), device="cpu", weights=weights)
    assert isinstance(loaded.model.model.layers[1].mlp.inner.down_proj, PackedLinear)
    kind = NARROW if weights == "int4" else choice.BITS[weights]  # 32 columns are too few for Q4_K
    ids = tokens(MANY)[None]
    with torch.no_grad():
        assert torch.allclose(loaded.model(ids).logits, rounded(theirs, kind)(ids).logits, atol=1e-4)
    assert failing(str(tmp_path / "folder"), weights="fp8").startswith("fp8 weights are for cards")


@needs_ggml
@pytest.mark.parametrize("tied", [True, False])
def test_a_rounded_folder_is_known_by_all_its_weights(tied: bool, quantised: Path, tmp_path: Path) -> None:
    model, tokenizer = unpacked(quantised)
    if not tied:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(2 * model.lm_head.weight.data)
    known = set()
    for name in ("one", "other"):  # with the same norms, as when an adapter was merged
        for part in (model, tokenizer):
            part.save_pretrained(tmp_path / name)
        full, *rounded = (engine_of(tmp_path / name, weights).sample for weights in ("full", "int8", "int4"))
        on_card = load_rounded(str(tmp_path / name), 0, torch.float32, filler("int8", CPU, torch.float32))[1]
        assert {full} == {*rounded, on_card}  # a pot of one is a pot of the other
        known.add(full)
        model.model.layers[1].mlp.up_proj.weight.data *= 1.5
    assert len(known) == 2


@needs_ggml
@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_float32_tensors_may_begin_anywhere_in_their_file(
    shift: int, tiny_gguf: Path, tmp_path: Path
) -> None:
    model, tokenizer = unpacked(tiny_gguf)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file), file, {"format": "pt", "more": shift * "x"})  # a longer header
    reader = engine_of(tmp_path, "int8").reader(Recipe.named(capacity=200, format="plain"))
    assert "".join(reader.ask("hello?", Generation(3)))


def engine_of(folder: Path, weights: str) -> Engine:
    return open_engine(str(folder), device="cpu", dtype="float32", weights=weights)


@needs_ggml
@pytest.mark.parametrize(("weights", "kind"), [("int8", 8), ("int4", NARROW)])
def test_floats_of_a_gguf_are_rounded_if_that_is_asked(tiny_gguf: Path, weights: str, kind: int) -> None:
    assert not load(str(tiny_gguf), device="cpu", weights="auto").choice.packed
    loaded = load(str(tiny_gguf), device="cpu", weights=weights)
    linear = loaded.model.model.layers[1].mlp.inner.down_proj
    assert isinstance(linear, PackedLinear)
    assert {one.kind for one in linear.shared.weights} == {kind}  # 64 columns are too few for Q4_K
    theirs, _ = unpacked(tiny_gguf)
    ids = tokens(MANY)[None]
    with torch.no_grad():
        found, wanted = loaded.model(ids).logits, rounded(theirs, kind)(ids).logits
    assert torch.allclose(found, wanted, atol=1e-4)


def test_weights_that_cannot_be_held_are_refused_or_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(wanted: str, kind: int = 12, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Any:
        size = (256, 256)
        index = Index("llama", (ggml_place("a", kind, size),))
        return choice.choose_weights(wanted, torch.device(device), dtype, index)

    with pytest.raises(ConfigError, match="unknown weights 'int3'"):
        chosen("int3")
    with pytest.raises(ConfigError, match="int4 weights are for CPUs and CUDA cards"):
        chosen("int4", device="mps")
    assert chosen("int4", device="cuda").how == "Q4_K, as in the file"
    assert chosen("int8", kind=10, device="cuda").how == "Q2_K rounded to int8"
    assert not chosen("auto", device="cuda").packed
    assert not chosen("auto", dtype=torch.bfloat16).packed
    monkeypatch.setattr(ggml, "find", lambda: "the package is not installed")
    assert chosen("auto").note.startswith(
        "weights are unpacked, which takes more memory and time: the package"
    )
    with pytest.raises(ConfigError, match="int8 weights need ggml's kernels, and the package is not"):
        chosen("int8")


def ggml_place(name: str, kind: int, shape: tuple[int, ...]) -> Any:
    from infinipot.hf.packed.gguf_index import Place

    return Place(name, kind, shape, 0, 1)


@needs_ggml
def test_unknown_format_is_one_line_before_anything_is_loaded() -> None:
    index = Index("llama", (ggml_place("a", 12, (256, 256)), ggml_place("b", 16, (256, 256))))
    with pytest.raises(ConfigError, match="its weights are in IQ2_XXS, which cannot be held packed: use"):
        choice.choose_weights("auto", CPU, torch.float32, index)


@needs_ggml
def test_packed_weights_need_the_memory_of_the_file(quantised: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device="cpu": 60_000)
    load(str(quantised), device="cpu", weights="auto")
    assert "needs 0.1 MB in float32" in failing(str(quantised))
    monkeypatch.setattr(memory, "available", lambda device="cpu": 1_000)
    assert "as in the file and 0.0 MB is free" in failing(str(quantised), weights="auto")


def test_damaged_blocks_and_files_cut_short_are_one_line(quantised: Path, home: Path) -> None:
    whole = quantised.read_bytes()
    folder = described(quantised)
    place = next(one for one in Index.load(folder).places if one.name == "blk.1.ffn_up.weight")
    broken = bytearray(whole)
    broken[place.offset : place.offset + 2] = np.array([np.nan], np.float16).tobytes()
    quantised.write_bytes(broken)
    assert "is damaged: blk.1.ffn_up.weight has values that are no numbers" in failing(str(quantised))
    model = load_gguf_skeleton(folder)
    quantised.write_bytes(whole[:-100])
    with pytest.raises(ModelError, match="is cut short: download it again"):
        Weights.of(model, quantised, Index.load(folder), 0)


@needs_ggml
@pytest.mark.parametrize("kind", ["Q8_0", "F16"])
def test_weights_of_another_shape_are_one_line_not_the_end_of_the_process(
    kind: str, tmp_path: Path, home: Path
) -> None:
    write_gguf(tmp_path / "tiny.gguf", kind, {"blk.1.ffn_down.weight": (32, 128)})
    problem = "model.layers.1.mlp.down_proj.weight is 32 by 128, not 32 by 64: is the model complete?"
    assert failing(str(tmp_path / "tiny.gguf"), weights="int8") == problem


def load_gguf_skeleton(folder: Path) -> Any:
    from transformers import AutoConfig

    from infinipot.hf.packed.load import skeleton

    return skeleton(AutoConfig.from_pretrained(folder), torch.float32)


def stepped(model: HFModel, pots: list[Pot], tokens: list[int]) -> torch.Tensor:
    return model.forward(torch.tensor(tokens)[:, None], pots[0] if len(pots) == 1 else Rows(pots))


@needs_ggml
def test_single_tokens_are_those_of_the_decoder(quantised: Path) -> None:
    model = HFModel(load(str(quantised), device="cpu", weights="auto").model)
    steps = model.steps
    assert steps is not None
    for rows in (1, 3):
        fast, slow = ([model.new_pot(64, 32) for _ in range(rows)] for _ in range(2))
        for row, pots in enumerate(zip(fast, slow, strict=True)):
            for pot in pots:
                model.forward(tokens(5 + row)[None], pot)
        for turn in range(4):
            given = [3 + turn + 7 * row for row in range(rows)]
            model.steps = steps
            found = stepped(model, fast, given)
            model.steps = None
            wanted = stepped(model, slow, given)
            assert found.shape == (rows, 1, 32)
            assert float((found - wanted).norm() / wanted.norm()) < 0.02
        for one, other in zip(fast, slow, strict=True):
            assert one.fill == other.fill
            for ours, theirs in zip(one.pot_layers, other.pot_layers, strict=True):
                assert torch.allclose(ours.keys[:, :, : one.fill], theirs.keys[:, :, : one.fill], atol=0.05)
                assert torch.equal(ours.source[:, :, : one.fill], theirs.source[:, :, : one.fill])


@needs_ggml
@pytest.mark.parametrize("change", ["another part", "another sum", "another scale", "a parameter", "a norm"])
def test_a_decoder_that_computes_something_else_has_no_steps(
    change: str, quantised: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(str(quantised), device="cpu", weights="auto").model
    layer = model.model.layers[1 if change == "another scale" else 0]
    if change == "another part":
        layer.more = torch.nn.Identity()
    elif change == "another sum":  # what Granite does to what a layer adds
        whole = type(layer.mlp).forward
        monkeypatch.setattr(type(layer.mlp), "forward", lambda self, x: 0.5 * whole(self, x))
    elif change == "another scale":
        layer.self_attn.scaling *= 2
    elif change == "a parameter":
        layer.self_attn.sinks = torch.nn.Parameter(torch.zeros(4))
    else:
        model.model.norm = torch.nn.Identity()
    assert HFModel(model).steps is None


def test_readers_in_several_threads_get_what_each_gets_alone(quantised: Path) -> None:
    """All packed weights of a process share their buffers."""
    engine = open_engine(str(quantised), device="cpu")
    before = sys.getswitchinterval()

    def read(number: int) -> tuple[str, list[torch.Tensor]]:
        reader = engine.reader(Recipe.named(capacity=512, format="plain"))
        reader.read(f"{number} and " * 200)
        answer = reader.ask(f"What is {number}?", Generation(12), recall=0)
        return str(answer), [layer.keys.clone() for layer in reader.pot.pot_layers]

    alone = [read(number) for number in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            together = list(threads.map(read, range(4)))
    finally:
        sys.setswitchinterval(before)
    for one, other in zip(alone, together, strict=True):
        assert one[0] == other[0]
        assert all(map(torch.equal, one[1], other[1]))
