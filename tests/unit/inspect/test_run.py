"""A toy model reads, is recorded, scored with the whole text at hand, and reported."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from infinipot.core.attention import LogitSpec
from infinipot.core.pot import Pot
from infinipot.engine import Engine
from infinipot.errors import ConfigError, StoreError
from infinipot.inspect import measures
from infinipot.inspect.findings import findings
from infinipot.inspect.page import payload, write_report
from infinipot.inspect.run import Run, check, check_memory, pieces, record, whole
from infinipot.reading.recording import Record
from infinipot.reading.sampling import Generation
from infinipot.recipes.presets import find
from infinipot.recipes.recipe import Recipe
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

MODEL, TOKENIZER = ToyModel(layers=3), ByteTokenizer()
ENGINE = Engine("toy", "plain", MODEL, TOKENIZER)
TEXT = "".join(f"The quick brown fox met dog number {n} </script> & 日本 😀.\n" for n in range(14))
QUESTION = "Which dog?"


def run(name: str, text: str = TEXT, **options: object) -> Run:
    recipe = Recipe.named(name, capacity=160, keep=80, tail="distil", **options)
    return record(recipe.reader(MODEL, TOKENIZER), text, QUESTION, Generation(6), {"name": name})


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [
        run("infinipot", catalyst="a summary"),
        run("cap-only", catalyst="a summary"),
        run("sirllm"),
        run("swa"),
    ]


def test_the_record_ends_where_the_answer_begins(runs: list[Run]) -> None:
    for one in runs:
        kept = one.record
        assert "".join(kept.pieces) == TEXT
        assert kept.ids.tolist()[1:] == list(TEXT.encode())
        assert (kept.held().sum(-1) == 80).all(), "settled: the last chunk was distilled too"
        assert kept.about["question"] == QUESTION
        assert kept.novelty[1:].min() > 0, "novelty is known whether the policy asks for it or not"
    swa = runs[-1].record.held()
    assert swa[..., -80:].all()
    sirllm = runs[2].record.held()
    assert (sirllm == sirllm[:1, :1]).all(), "the same tokens for all layers and heads"


def test_a_recorded_reader_answers_as_an_unrecorded_one(runs: list[Run]) -> None:
    recipe = Recipe.named("infinipot", capacity=160, keep=80, tail="distil", catalyst="a summary")
    reader = recipe.reader(MODEL, TOKENIZER)
    reader.read(TEXT)
    assert runs[0].answer == "".join(reader.answer(QUESTION, Generation(6))).strip()


def test_global_scoring_is_the_first_answer_token_s_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[int, torch.Tensor] = {}
    original = Pot.observe

    def spy(
        pot: Pot, layer: int, queries: torch.Tensor, keys: torch.Tensor, spec: LogitSpec, *sums: Any
    ) -> None:
        logits = queries[:, :, -1:].unflatten(1, (keys.shape[1], -1)) @ keys.unsqueeze(2).mT * spec.scale
        seen[layer] = logits.softmax(-1)[0, :, :, 0].mean(1)  # [Hkv, S] of the latest query
        original(pot, layer, queries, keys, spec, *sums)

    monkeypatch.setattr(Pot, "observe", spy)
    found = whole(ENGINE, TEXT, QUESTION, "plain")
    count = 1 + len(TEXT.encode())
    asked = len(QUESTION) + len(TOKENIZER.frame("plain").ask_before)
    assert all(scores.shape[-1] == count + asked + 1 for scores in seen.values()), "it was written itself"
    wanted = torch.stack([seen[layer][:, :count] for layer in range(3)])
    np.testing.assert_allclose(found.scores, wanted, atol=1e-6)
    assert found.layers == (0, 1, 2)
    assert found.novelty.shape == (count,)


def test_what_global_scoring_holds_hits_everything(runs: list[Run]) -> None:
    scored = whole(ENGINE, TEXT, QUESTION, "plain")
    best = measures.top(scored.scores, np.full((3, 2), 80))
    assert (measures.hit_rate(best, scored.scores) == 1).all()
    found = findings(runs, scored)
    assert set(found.hits) == {"infinipot", "cap-only", "sirllm", "swa"}
    assert all(hits.min() >= 0 and hits.max() < 1 for hits in found.hits.values())
    assert ("infinipot", "cap-only") in [pair.names for pair in found.pairs]
    for novelty in found.novelty.values():
        assert (novelty.held.mean((1, 2)) <= np.array(novelty.best) + 1e-6).all()


def test_too_long_a_text_for_global_scoring_is_refused_in_one_line() -> None:
    check_memory(1000, 1000, 2_000_000)
    with pytest.raises(ConfigError, match=r"1\.0 GB are free: use `no_global`, or a text of 800 tokens"):
        check_memory(1000, 1_000_000, 1_000_000_000)


@pytest.mark.parametrize("name", ["full", "truncate", "snapkv", "self-extend"])
def test_recipes_that_drop_nothing_while_reading_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="drops nothing while it reads"):
        check(find(name))


def test_pieces_joined_are_the_text() -> None:
    assert "".join(pieces(TOKENIZER, list(TEXT.encode()))) == TEXT
    assert pieces(TOKENIZER, []) == []


def unpacked(packed: str, kind: type) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(packed)), kind)


def test_the_page_s_data_say_what_the_record_says(runs: list[Run]) -> None:
    data = payload(runs)
    kept = runs[0].record
    starts = measures.words(kept.pieces)
    assert data["text"] == TEXT
    assert unpacked(data["starts"], np.uint32).tolist() == starts.tolist()
    assert unpacked(data["lengths"], np.uint32).sum() == len(TEXT.encode("utf-16-le")) // 2
    ours = data["recipes"][0]
    share = unpacked(ours["share"], np.uint8).reshape(len(ours["tokens"]), -1)
    for row, cycle in zip(share, ours["cycles"], strict=True):
        np.testing.assert_allclose(row / 255, measures.shares(kept.held(cycle), starts), atol=1 / 255)
    held = unpacked(ours["map"], np.uint8).reshape(-1, data["lines"], data["bins"])
    assert held.shape == (len(ours["tokens"]), 6, 64)


def test_a_report_is_a_page_pictures_numbers_and_recordings(runs: list[Run], tmp_path: Path) -> None:
    scored = whole(ENGINE, TEXT, QUESTION, "plain")
    written, told = write_report(runs, scored, tmp_path / "out", {"question": "<b>Who?</b>"})
    names = {path.name for path in written}
    assert {"index.html", "report.json", "infinipot.npz", "cap-only.npz"} <= names
    assert {"hit-rate.png", "frequency.png", "overlap.png", "novelty.png", "retention.png"} <= names
    assert told == json.loads((tmp_path / "out" / "report.json").read_text())
    assert told["recipes"][0]["recording_file_bytes"] == (tmp_path / "out" / "infinipot.npz").stat().st_size
    assert (Record.load(tmp_path / "out" / "swa.npz").held() == runs[-1].record.held()).all()
    page = written[0].read_text()
    assert "&lt;b&gt;Who?" in page
    assert "<b>Who?" not in page
    assert page.count("</script>") == 2, "the text's own is escaped"
    assert not re.findall(r'(?:src|srcset|href)="(?!data:)', page), "nothing is fetched"
    assert "://" not in page


def test_without_global_scoring_there_is_no_hit_rate(runs: list[Run], tmp_path: Path) -> None:
    written, told = write_report(runs[:1], None, tmp_path, {})
    assert told["recipes"][0]["hit_rate"] is None
    assert not {"hit-rate.png", "overlap.png"} & {path.name for path in written}
    assert "hit rate" not in written[0].read_text().split("<h2>")[0]


def test_a_folder_that_cannot_be_written_is_one_line(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write to"):
        write_report(runs[:1], None, tmp_path / "file" / "out", {})


def test_a_text_that_fits_can_be_looked_at_too(tmp_path: Path) -> None:
    one = run("sirllm", "Short.")
    written, told = write_report([one], None, tmp_path, {})
    assert told["recipes"][0]["cycles"] == 0
    assert written[0].exists()
