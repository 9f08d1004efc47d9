"""One pot as bytes: exact, a plain safetensors file, and refused when anything in it was touched."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import toy_pots as toy
from infinipot.core.state import State
from infinipot.errors import StoreError
from infinipot.models import fingerprint
from infinipot.reading.sampling import Generation
from infinipot.store import file
from infinipot.store.card import FORMAT, Card
from infinipot.store.match import mismatch, recipe_of

FOLDER = TemporaryDirectory()


def at(data: bytes) -> Path:
    """A file with these bytes."""
    path = Path(mkdtemp(dir=FOLDER.name)) / "x.pot"
    path.write_bytes(data)
    return path


def written(state: State | None = None, **changes) -> bytes:
    path = at(b"")
    file.write(path, state or toy.read().state(), toy.card(**changes))
    return path.read_bytes()


def read(data: bytes) -> tuple[State, object]:
    return file.read(at(data), "pot 'x'")


def refused(data: bytes) -> str:
    """Loading, checking and, where the head is touched, the card alone must refuse."""
    said = []
    for act in (file.read, file.check):
        with pytest.raises(StoreError) as caught:
            act(at(data), "pot 'x'")
        said.append(str(caught.value))
    assert len({line.partition(" (")[0] for line in said}) == 1  # the library names one of two wrong tensors
    assert said[0].startswith("pot 'x' ")
    assert "\n" not in said[0]
    return said[0]


WHOLE = written()


def parts(data: bytes = WHOLE) -> tuple[dict, bytes]:
    count = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + count]), data[8 + count :]


def rebuilt(head: object, rest: bytes) -> bytes:
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + rest


def test_what_is_written_is_what_is_read() -> None:
    state = toy.read().state()
    found, card = read(written(state))
    assert toy.same(found, State(dict(state.tensors), json.loads(json.dumps(dict(state.numbers)))))
    assert card == toy.card(bytes=sum(t.nbytes for t in state.tensors.values()))
    assert file.check(at(WHOLE), "it") == file.head(at(WHOLE), "it").card == card


@pytest.mark.parametrize("kind", [name for name, _ in file.DTYPES.values()])
def test_every_dtype_and_odd_shape(kind: str) -> None:
    dtype = getattr(torch, kind)
    shapes = [(), (0,), (3,), (2, 0, 5), (1, 2, 3, 7)]
    tensors = {f"t.{k}": (torch.rand(shape) * 9).to(dtype) for k, shape in enumerate(shapes)}
    tensors["odd"] = torch.tensor([1, 2, 3], dtype=torch.int8)
    tensors["turned"] = (torch.rand(4, 6) * 9).to(dtype).T  # not in one piece
    state = State(tensors, {"a": [1, 2.5, None, "ü"], "b": {"z": 1, "a": True}})
    assert toy.same(read(written(state))[0], state)


def test_any_safetensors_reader_opens_it() -> None:
    path = at(WHOLE)
    state = toy.read().state()
    loaded = safetensors.torch.load_file(path)
    assert toy.same(State(loaded), State(dict(state.tensors)))
    with safetensors.safe_open(path, "pt") as opened:
        document = json.loads(opened.metadata()["infinipot"])
    assert document["card"]["model"] == "toy"
    assert document["numbers"]["tokens_read"] == 180


def test_int8_rounds_keys_and_values_and_nothing_else() -> None:
    state = toy.read().state()
    data = written(state, encoding="int8")
    found, card = read(data)
    assert card.encoding == "int8"
    assert len(data) < len(WHOLE)
    assert found.tensors.keys() == state.tensors.keys()
    for name, tensor in state.tensors.items():
        other = found.tensors[name]
        assert other.dtype == tensor.dtype
        if name.rpartition(".")[2] in ("keys", "values", "anchors"):
            step = tensor.abs().amax(-1, keepdim=True) / 127
            assert ((other - tensor).abs() <= step * 0.501).all()
            assert not torch.equal(other, tensor)
        else:
            assert torch.equal(other, tensor)


def test_int8_of_zeros_and_of_half_precision() -> None:
    state = State({"keys": torch.zeros(1, 2, 3, 4), "values": torch.rand(1, 2, 3, 4).bfloat16()})
    found, _ = read(written(state, encoding="int8"))
    assert torch.equal(found.tensors["keys"], state.tensors["keys"])
    assert found.tensors["values"].dtype == torch.bfloat16


@settings(max_examples=300)
@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_changes_nothing(at: int, flip: int) -> None:
    data = bytearray(WHOLE)
    data[at] ^= flip
    try:
        found, card = read(bytes(data))
    except StoreError:
        return
    wanted = read(WHOLE)
    head = 8 + int.from_bytes(WHOLE[:8], "little")
    assert at < head  # a space for another: every byte of a tensor counts
    assert toy.same(found, wanted[0])
    assert card == wanted[1]


@settings(max_examples=100)
@given(st.integers(0, len(WHOLE) - 1))
def test_a_file_cut_short_is_refused(length: int) -> None:
    assert "not a whole pot" in refused(WHOLE[:length])


def test_something_after_the_end_is_refused() -> None:
    assert "not fully covered" in refused(WHOLE + b"\0")


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps({"a": 1}))
    return stream.getvalue()


class Trap:
    """Unpickling it would show."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 8,
        b"\0" * 100,
        b"hello",
        pickle.dumps({"a": 1}),
        pickle.dumps(Trap()),
        pickle.dumps(Trap(), protocol=0),
        zipped(),
        b"\x89PNG\r\n\x1a\n" + b"\0" * 50,
        (2**63).to_bytes(8, "little") + b"{}",
        (2**64 - 1).to_bytes(8, "little"),
        (100).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
        (4).to_bytes(8, "little") + b"null",
        (9).to_bytes(8, "little") + b'\xff' * 9,
        (10**6).to_bytes(8, "little") + b"[" * 10**6,
        (10**6).to_bytes(8, "little") + b'{"a":' * (10**6 // 5),
        safetensors.torch.save({"a": torch.ones(3)}),
        safetensors.torch.save({"a": torch.ones(3)}, {"infinipot": "{}"}),
        safetensors.torch.save({"a": torch.ones(3)}, {"infinipot": "[" * 5000}),
    ],
    ids=range(20),
)  # fmt: skip
def test_what_is_no_pot_is_refused(data: bytes) -> None:
    assert "pot" in refused(data)


def test_a_torch_file_is_refused(tmp_path) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / "x.pot")
    assert "not a whole pot" in refused((tmp_path / "x.pot").read_bytes())


@cache
def lies() -> dict[str, bytes]:
    """Headers that say something else than is there."""
    made = {}

    def lie(what: str, change) -> None:
        head, rest = parts()
        names = sorted(set(head) - {"__metadata__"}, key=lambda name: head[name]["data_offsets"])
        change(head, names)
        made[what] = rebuilt(head, rest)

    def put(index: int, key: str, value: object):
        return lambda head, names: head[names[index]].__setitem__(key, value)

    lie("huge shape", put(0, "shape", [2**40, 2**40]))
    lie("huge dimension times nothing", put(0, "shape", [2**63, 0]))
    lie("negative shape", put(0, "shape", [-1, -8]))
    lie("fraction of a shape", put(0, "shape", [1.5]))
    lie("boolean shape", put(0, "shape", [True]))
    lie("no shape", put(0, "shape", None))
    lie("deep shape", put(0, "shape", [1] * 100))
    lie("unknown dtype", put(0, "dtype", "F7"))
    lie("dtype of another width", put(0, "dtype", "I8"))
    lie("dtype that is a list", put(0, "dtype", ["F32"]))
    lie("offsets outside", put(-1, "data_offsets", [10**9, 10**9 + 8]))
    lie("offsets backwards", put(0, "data_offsets", [8, 0]))
    lie("negative offsets", put(0, "data_offsets", [-8, 0]))
    lie("three offsets", put(0, "data_offsets", [0, 4, 8]))
    lie("no tensor", lambda head, names: head.__setitem__(names[0], 7))
    lie("one tensor less", lambda head, names: head.pop(names[-1]))
    lie("a tensor twice", lambda head, names: head.__setitem__("zzz", head[names[-1]]))
    lie("another name", lambda head, names: head.__setitem__("aaa", head.pop(names[0])))
    lie("half a character", lambda head, names: head.__setitem__("\ud800", head.pop(names[0])))
    lie(
        "half a character inside", lambda head, names: head["__metadata__"].__setitem__("infinipot", "\ud800")
    )
    lie(
        "no finite number",
        lambda head, names: head["__metadata__"].__setitem__(
            "infinipot",
            head["__metadata__"]["infinipot"].replace('"numbers":{', '"numbers":{"x":1e999,'),
        ),
    )
    lie("no metadata", lambda head, names: head.pop("__metadata__"))
    lie("other metadata", lambda head, names: head.__setitem__("__metadata__", {"infinipot": 7}))

    def swap(head, names):
        alike = [name for name in names if name.endswith(".keys")]
        first, second = head[alike[0]]["data_offsets"], head[alike[1]]["data_offsets"]
        head[alike[0]]["data_offsets"], head[alike[1]]["data_offsets"] = second, first

    lie("tensors swapped", swap)

    def overlap(head, names):
        alike = [name for name in names if name.endswith(".keys")]
        head[alike[1]]["data_offsets"] = head[alike[0]]["data_offsets"]

    lie("tensors on top of each other", overlap)
    head, rest = parts()
    text = json.dumps(head)[:-1] + ',"__metadata__":{}}'
    made["a name twice"] = struct.pack("<Q", len(text)) + text.encode() + rest
    return made


def test_a_field_that_the_library_does_not_know_changes_nothing() -> None:
    head, rest = parts()
    head[min(set(head) - {"__metadata__"})]["more"] = 1
    found, card = read(rebuilt(head, rest))
    assert toy.same(found, read(WHOLE)[0])
    assert card == read(WHOLE)[1]


@pytest.mark.parametrize("what", lies())
def test_a_header_that_lies_is_refused(what: str) -> None:
    refused(lies()[what])


def test_a_sum_of_ones_own_does_not_help_a_wrong_document() -> None:
    """Whoever forges the sum too gets no further than the checks of each part."""
    state = toy.filled(1)
    for changes in (
        {"packed": {"pot.000.keys": "F32"}},
        {"packed": {"nothing": "F32"}},
        {"packed": {"a": 7}},
        {"card": toy.card(bytes=1).to_json()},
    ):
        head = file.Head(toy.card(), state.numbers, {}, [])
        document = {**head.document(), **changes}
        digest = hashlib.sha256(file.canonical(document).encode()).hexdigest()
        forged = {"__metadata__": {"infinipot": file.canonical({**document, "sha256": digest})}}
        assert "not a whole pot" in refused(rebuilt(forged, b""))


def test_a_newer_pot_says_upgrade() -> None:
    assert "upgrade infinipot" in refused(written(format=FORMAT + 1))


def test_a_huge_shape_of_nothing_with_a_right_sum_takes_no_memory() -> None:
    card, place = toy.card(bytes=0), file.Place("x", "F32", (2**62, 0))
    document, mark = file.Head(card, {}, {}, [place]).document(), f"\nx F32 [{2**62}, 0]\n"
    digest = hashlib.sha256(file.canonical(document).encode() + mark.encode()).hexdigest()
    forged = {
        "__metadata__": {"infinipot": file.canonical({**document, "sha256": digest})},
        "x": {"dtype": "F32", "shape": list(place.shape), "data_offsets": [0, 0]},
    }
    assert read(rebuilt(forged, b""))[0].tensors["x"].numel() == 0


def test_the_card_alone_is_read_without_the_tensors() -> None:
    head = 8 + int.from_bytes(WHOLE[:8], "little")
    hollow = WHOLE[:head] + bytes(len(WHOLE) - head)
    assert replace(file.head(at(hollow), "it").card, bytes=0) == toy.card()
    assert "checksum" in refused(hollow)


def test_a_pot_is_held_once_while_it_is_loaded(tmp_path) -> None:
    """Some 64 MB: read by a process of its own, whose peak says how often it was there."""
    file.write(tmp_path / "x.pot", toy.filled(1, 64), toy.card())
    code = (
        "from pathlib import Path\nfrom infinipot.models.memory import forget_peak, recent_peak_bytes\n"
        "from infinipot.store import file\nimport torch, psutil\n"
        "before = psutil.Process().memory_info().rss\nforget_peak()\n"
        f"state, _ = file.read(Path({str(tmp_path / 'x.pot')!r}), 'it')\n"
        "print((recent_peak_bytes() - before) / sum(t.nbytes for t in state.tensors.values()))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(said.stdout) < 1.5


OLD = Path(__file__).parents[2] / "data"


def old(name: str) -> tuple[State, Card]:
    """A toy's pot that the hand-written writer made, before `safetensors` wrote them."""
    state, card = file.read(OLD / name, "it")
    # The toy's tokenizer has moved to another module since; a real one has no module in its fingerprint.
    return state, replace(card, tokenizer=fingerprint.tokenizer(toy.engine().tokenizer))


def test_a_pot_written_before_loads_bit_by_bit() -> None:
    state, card = old("pot-of-format-1.pot")
    assert toy.same(
        State(safetensors.torch.load_file(OLD / "pot-of-format-1.pot")), State(dict(state.tensors))
    )
    assert mismatch(card, toy.engine(), recipe_of(card)) == ""
    reader = toy.engine().reader(recipe_of(card))
    reader.restore(state)
    assert toy.same(State(dict(reader.state().tensors)), State(dict(state.tensors)))
    again = toy.read(recipe=recipe_of(card))  # its rounding is this machine's
    for old_layer, new_layer in zip(reader.pot.pot_layers, again.pot.pot_layers, strict=True):
        held = slice(0, reader.pot.fill)
        assert torch.equal(old_layer.source[..., held], new_layer.source[..., held])
    assert reader.ask("so?", Generation(8)) == again.ask("so?", Generation(8))


def test_a_pot_in_int8_written_before_loads() -> None:
    exact, (rounded, card) = old("pot-of-format-1.pot")[0], old("pot-of-format-1-int8.pot")
    path = at(b"")
    file.write(path, exact, replace(card, bytes=0))
    assert toy.same(file.read(path, "it")[0], rounded)
