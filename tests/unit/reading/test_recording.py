"""Recording: what is recorded is what the pot held, and a file brings it back without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from infinipot.core.config import PotConfig
from infinipot.core.evidence import Evidence
from infinipot.errors import InputError, ModelError
from infinipot.policies.infinipot import InfiniPot
from infinipot.reading.reader import Reader
from infinipot.reading.recording import Record, Recording
from infinipot.reading.sampling import Generation
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

TEXT = "The quick brown fox jumps over the lazy dog, again and again. " * 9
MODEL = ToyModel(layers=3)


def reader(capacity: int = 64, **options) -> Reader:
    return Reader(MODEL, ByteTokenizer(), InfiniPot(), PotConfig(capacity), catalyst="a summary", **options)


def held(potted: Reader) -> np.ndarray:
    """[L, H, T] as the pot itself says."""
    sources = [layer.source[0, :, : layer.fill] for layer in potted.pot.pot_layers]
    found = np.zeros((len(sources), sources[0].shape[0], potted.pot.tokens), bool)
    np.put_along_axis(found, torch.stack(sources).numpy(), True, -1)
    return found


def recorded(potted: Reader) -> tuple[Record, list[np.ndarray]]:
    """A record, and what the pot said after every cycle."""
    potted.session.recording, seen = Recording(), []
    for _ in potted.reading(TEXT):
        if potted.pot.cycles > len(seen):
            seen.append(held(potted))
    known = [found for found in potted.pot.evidence() if found is not None]
    potted.session.recording.rest(known, potted.pot.tokens)
    ids = [*potted.frame.opening, *TEXT.encode()]
    return potted.session.recording.record(ids, ["", *TEXT], {"name": "infinipot"}), seen


def test_a_record_says_what_the_pot_held_after_every_cycle() -> None:
    potted = reader()
    record, seen = recorded(potted)
    assert record.cycles == potted.pot.cycles == len(seen) > 10
    for cycle, wanted in enumerate(seen, 1):
        assert record.seen(cycle) == wanted.shape[-1]
        assert (record.held(cycle)[..., : wanted.shape[-1]] == wanted).all()
        assert not record.held(cycle)[..., wanted.shape[-1] :].any()
        assert (record.held(cycle).sum(-1) == 32).all()
    assert (record.held() == held(potted)).all()


def test_scores_and_novelty_are_those_the_policy_saw() -> None:
    potted, kept = reader(), []
    potted.session.recording = recording = Recording()
    original = recording.cycle

    def spy(evidence: list[Evidence], slots: list[torch.Tensor], tokens: int) -> None:
        chosen = zip(evidence, slots, strict=True)
        kept.append(torch.stack([found.catalyst.gather(2, slot)[0] for found, slot in chosen]))
        original(evidence, slots, tokens)

    recording.cycle = spy
    potted.read(TEXT)
    layer = potted.pot.pot_layers[1]
    places, wanted = layer.source[0, 1, : layer.fill], layer.novelty[0, 1, : layer.fill]
    recording.rest([found for found in potted.pot.evidence() if found], potted.pot.tokens)
    record = recording.record([*potted.frame.opening, *TEXT.encode()], ["", *TEXT], {})
    np.testing.assert_allclose(record.novelty[places.numpy()], wanted, rtol=2e-3)
    for found, score in zip(record.catalyst, kept, strict=True):
        np.testing.assert_allclose(found, score, rtol=2e-3, atol=1e-6)


def test_recording_changes_nothing_that_is_read() -> None:
    watched, plain = reader(), reader()
    watched.recording = Recording()
    watched.read(TEXT)
    plain.read(TEXT)
    for a, b in zip(watched.pot.pot_layers, plain.pot.pot_layers, strict=True):
        assert torch.equal(a.keys[:, :, : a.fill], b.keys[:, :, : b.fill])
    cycles = len(watched.recording.tokens)
    assert watched.ask("What?", Generation(40)) == plain.ask("What?", Generation(40))
    assert len(watched.recording.tokens) == cycles, "a question on the side is not recorded"
    assert watched.fork().session.recording is None


def test_a_file_is_small_and_brings_everything_back(tmp_path: Path) -> None:
    record, _ = recorded(reader())
    path = tmp_path / "a.npz"
    assert record.save(path) == path.stat().st_size < record.dropped.nbytes + 2 * 32 * 6 * record.cycles
    back = Record.load(path)
    assert (back.layers, back.pieces, back.about) == (record.layers, record.pieces, record.about)
    for name in ("tokens", "dropped", "novelty", "ids"):
        wanted = getattr(record, name)
        assert getattr(back, name).dtype == wanted.dtype
        np.testing.assert_array_equal(getattr(back, name), wanted)
    for one, other in zip(back.catalyst, record.catalyst, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_file_is_read_without_torch_or_pickle(tmp_path: Path) -> None:
    record, _ = recorded(reader())
    record.save(tmp_path / "a.npz")
    code = (
        "import sys, pathlib; from infinipot.reading.recording import Record\n"
        "print(Record.load(pathlib.Path(sys.argv[1])).held().sum(), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.npz")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(record.held().sum()), "False"]
    np.savez(tmp_path / "bad.npz", header=np.array([object()], dtype=object))
    with pytest.raises(InputError, match=r"is no recording: write one with"):
        Record.load(tmp_path / "bad.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not really", b"text"])
def test_what_is_no_recording_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.npz is no recording"):
        Record.load(tmp_path / "bad.npz")
    with pytest.raises(InputError, match="cannot read"):
        Record.load(tmp_path / "missing.npz")


def test_a_text_that_fits_has_no_cycles_and_is_held_whole() -> None:
    potted = reader()
    potted.session.recording = recording = Recording()
    potted.read("short")
    recording.rest([found for found in potted.pot.evidence() if found], potted.pot.tokens)
    record = recording.record([*potted.frame.opening, *b"short"], ["", *"short"], {})
    assert record.cycles == 0
    assert record.held().all()


def test_a_recording_begins_with_the_first_token() -> None:
    with pytest.raises(InputError, match="record from the first on"):
        Recording().record([1], ["a"], {})


def test_layers_with_different_heads_are_refused() -> None:
    def known(layer: int, heads: int) -> Evidence:
        return Evidence(layer, torch.zeros(1, heads, 4, dtype=torch.long), torch.zeros(1, heads, 4))

    with pytest.raises(ModelError, match="differ in their number of heads"):
        Recording().rest([known(0, 2), known(1, 4)], 4)
