"""Rows that cells have in common are made once, and are what every cell would have made itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import alike
import toy_eval as toy
from alike import Known, Sharing, places, taken
from infinipot.eval.evaluate import Evaluation, Workers, evaluate
from infinipot.eval.folder import read_rows
from infinipot.eval.grid import Grid
from infinipot.eval.runner import Job, Outcome, Runner
from infinipot.eval.tasks.task import Count, Example

CAPACITY, SIZES = 768, (200, 430, 640, 760, 1100, 1700)
RECIPES = (
    *("infinipot", "infinipot-paper", "cap-only", "nuc-only", "ccd", "tova", "sirllm", "no-cr-rope"),
    *("full", "truncate", "snapkv", "streaming-llm", "swa", "h2o-half", "self-extend"),
)


@dataclass(frozen=True)
class Stories:
    """Texts around the pot's size, every other one with a question of its own."""

    name: str = "stories"

    def describe(self) -> dict[str, Any]:
        return {}

    def examples(self, count: Count) -> Iterator[Example]:
        for number, size in enumerate(SIZES):
            text = "".join(chr(97 + (number + step * step) % 26) for step in range(size))
            query = f"Who is {number}?" if number % 2 else ""
            facts = {"task": "odd" if number % 2 else "even"}
            yield Example(f"story-{number}", text, "Which one is it?", ("a",), 6, query=query, facts=facts)

    def score(self, prediction: str, example: Example) -> float:
        return len(prediction) / 100


def rows(out: Path, grid: Grid, workers: Workers) -> list[dict[str, Any]]:
    list(evaluate(Evaluation(Stories(), grid, out), workers))
    return read_rows(out)


def sharing(folder: Path, batch: int = 3) -> Sharing:
    workers = Sharing(toy.engine)
    workers.known, workers.runner.batch = Known(folder), batch
    return workers


@pytest.mark.parametrize("tail", ["fill", "distil", "raw"])
def test_copied_rows_are_what_each_cell_makes_alone(tmp_path: Path, tail: str) -> None:
    grid = Grid(
        RECIPES, (CAPACITY,), ("by-task", "general"), {"tail": (tail,), "step": (64,), "units": ("slots",)}
    )
    alone = rows(tmp_path / "alone", grid, Workers(toy.engine, 1))
    shared = rows(tmp_path / "shared", grid, sharing(tmp_path / "known"))
    assert toy.told(shared) == toy.told(alone)
    copied = [row for row in shared if "same_as" in row]
    assert all(row["same_as"] != row["cell"] for row in copied)
    counted = {(row["cell"], row["example"]): (row["cycles"], row["entries"]) for row in alone}
    assert sum(row["example"] in ("story-0", "story-1") for row in copied) > 2 * len(RECIPES)
    assert all(counted[row["cell"], row["example"]] == (row["cycles"], row["entries"]) for row in copied)
    assert not any("self-extend" in (row["cell"], row["same_as"]) for row in copied)
    (name,) = {
        row["cell"] for row in shared if row["cell"].startswith("infinipot ") and "general" in row["cell"]
    }
    general = {row["example"] for row in copied if row["cell"] == name}
    first = {
        row["example"] for row in copied if row["same_as"] == name
    }  # which cell is, hangs on the process
    assert {"story-2", "story-4"} <= general
    assert {"story-0", "story-1"} <= general | first


def test_a_recipe_by_another_name_is_the_same_work(tmp_path: Path) -> None:
    workers, example = sharing(tmp_path), next(Stories().examples(len))

    def key(recipe: str, catalyst: str = "general", **options: Any) -> str:
        (cell,) = Grid((recipe,), (128,), (catalyst,), {n: (v,) for n, v in options.items()}).cells()
        return workers.key(Job(cell, example))

    assert key("infinipot-paper") == key("infinipot", pool=1, tail="raw") != key("infinipot", pool=1)
    assert key("cap-only") == key("infinipot", novelty=0.0)
    assert key("no-cr-rope") != key("infinipot")
    assert key("infinipot", "by-task") == key("infinipot", units="slots") != key("infinipot")
    assert key("streaming-llm", step=1) != key("swa", step=1)


def test_workers_know_what_the_others_did_and_say_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Grid(("infinipot",), (CAPACITY,), ("general",))
    first = rows(tmp_path / "first", grid, sharing(tmp_path / "known"))
    monkeypatch.setattr(Runner, "several", lambda *_: pytest.fail("all is known"))
    again = rows(tmp_path / "again", grid, sharing(tmp_path / "known"))
    assert toy.told(again) == toy.told(first)
    assert not any("same_as" in row for row in again)  # its own rows


def test_workers_begin_what_all_have_at_different_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, orders = Grid(("infinipot",), (4096,), ("general",)), set()
    for pid in range(8):
        monkeypatch.setattr(alike.os, "getpid", lambda pid=pid: pid)
        found = rows(tmp_path / f"out-{pid}", grid, sharing(tmp_path / f"known-{pid}", batch=1))
        assert len(found) == len(SIZES)
        orders.add(found[0]["example"])
    assert len(orders) > 2


def test_half_a_line_of_another_worker_waits(tmp_path: Path) -> None:
    workers = sharing(tmp_path)
    rows(tmp_path / "out", Grid(("full",)), workers)
    (path,) = tmp_path.glob("*.jsonl")
    whole = path.read_bytes()
    (job, *_) = [Job(cell, one) for cell in Grid(("full",)).cells() for one in Stories().examples(len)]
    path.write_bytes(whole[:20])
    known = Known(tmp_path)
    known.refresh()
    assert known.get(workers.key(job), job) is None
    path.write_bytes(whole)
    known.refresh()
    assert known.get(workers.key(job), job) is not None


def test_only_some_rows_of_each_part_and_short_texts_are_taken(tmp_path: Path) -> None:
    workers = sharing(tmp_path / "known")
    workers.rows = 2
    found = rows(tmp_path / "first", Grid(("full",)), workers)
    drawn = places(list(Stories().examples(len)))
    assert {row["example"] for row in found} == {name for name, place in drawn.items() if place < 2}
    assert len(found) == 4
    workers.rows, workers.longest = inf, 500
    found = rows(tmp_path / "short", Grid(("full",)), workers)
    assert {row["example"] for row in found} == {"story-0", "story-1"}
    assert sorted(drawn.values()) == [0, 0, 1, 1, 2, 2]
    many = [Example(f"row-{n:02}", "a", "?", ("a",), 1) for n in range(20)]
    assert [places(many)[one.id] for one in many] != list(range(20))  # not as they lie in their file


def test_shares_are_apart_and_together_all_with_texts_of_every_length() -> None:
    examples = list(Stories().examples(len))
    first, second = (taken(examples, inf, inf, (number, 2)) for number in (0, 1))
    assert not first & second
    assert first | second == {one.id for one in examples}
    assert all({"story-4", "story-5"} & share for share in (first, second))  # the longest
    few = [taken(examples, 2, 1000, (number, 2)) for number in (0, 1)]
    short = [one for one in examples if len(one.text) <= 1000]
    assert few[0] | few[1] == {one.id for one in short if places(examples)[one.id] < 2}


def test_what_an_earlier_run_computed_is_taken_over_by_every_cell_that_does_the_same(tmp_path: Path) -> None:
    before = Grid(("infinipot-paper",), (CAPACITY,), ("general",))
    kept = rows(tmp_path / "before", before, sharing(tmp_path / "known"))
    workers = sharing(tmp_path / "new")
    after = Grid(("infinipot",), (CAPACITY,), ("by-task",))
    wanted = Evaluation(Stories(), after, tmp_path / "after")
    workers.learn(wanted, before.cells("plain"), [*kept, {**kept[0], "cell": "of another plan"}])
    found = {row["example"]: row.get("same_as") for row in rows(tmp_path / "after", after, workers)}
    name = before.cells("plain")[0].name
    assert {one for one, cell in found.items() if cell == name} == {"story-0", "story-1"}  # they fit
    assert set(found.values()) == {name, None}


def test_no_row_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    workers = sharing(tmp_path / "known")
    workers.until = 0.0
    assert rows(tmp_path / "out", Grid(("full",)), workers) == []


def test_no_row_is_begun_that_would_be_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of 430 and 760 letters come first, and take a second for 1,000."""
    monkeypatch.setattr(Sharing, "fits", lambda *_: False)
    now = [0.0]

    def slowly(_: Runner, jobs: list[Job]) -> list[Outcome]:
        now[0] += sum(len(job.example.text) for job in jobs) / 1000
        return [Outcome("slow") for _ in jobs]

    monkeypatch.setattr(Runner, "several", slowly)
    monkeypatch.setattr(alike, "time", SimpleNamespace(time=lambda: now[0]))
    for grace, count in ((0.0, 1), (0.3, 2)):
        workers, now[0] = sharing(tmp_path / f"known-{count}", batch=1), 0.0
        workers.until, workers.grace = 1.0, grace
        assert len(rows(tmp_path / f"out-{count}", Grid(("full",)), workers)) == count
