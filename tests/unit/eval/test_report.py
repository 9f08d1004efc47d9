"""Reports: the numbers, what may stand beside what, and a page that needs nothing else."""

from __future__ import annotations

import csv
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from infinipot.errors import ConfigError, InputError
from infinipot.eval.estimates import Estimate, points
from infinipot.eval.grid import Grid
from infinipot.eval.leaderboard import standings
from infinipot.eval.plots import budget, compared
from infinipot.eval.report import report
from infinipot.eval.results import load, sections
from toy_eval import kept_run

PASSKEY = [
    (f"{length}-{depth}-{trial}", {"length": length, "depth": depth, "trial": trial})
    for length in (4096, 8192)
    for depth in (0.1, 0.9)
    for trial in range(5)
]
OURS = r"\| infinipot 4096 by-task \| 50.0 \| 10.0 \| 60.0 \| 20.0"
GRID = Grid(("infinipot", "truncate", "full"), (1024, 2048), catalysts=("general",))


def hit(cell: Any, name: str, facts: dict[str, Any]) -> float:
    """infinipot finds all but one of each five; truncation only what is first or last of short texts."""
    if cell.recipe.preset.name == "truncate":
        return float(facts["length"] == 4096)
    return float(facts["trial"] > 0)


def passkey(path: Path, grid: Grid = GRID, **changes: Any) -> Path:
    return kept_run(path, "passkey", grid, PASSKEY, hit, **changes)


def longbench(path: Path, count: int = 12, few: int = 12, **changes: Any) -> Path:
    tasks = ("qasper", "trec", "qasper_e", "trec_e")
    buckets = ("0-4k", "4-8k", "8k+")
    rows = [
        (f"{task}/{n}", {"task": task, "dataset": task, "length": 3000 * n, "bucket": buckets[n % 3]})
        for task in tasks
        for n in range(count if task != "trec_e" else few)
    ]

    def score(cell: Any, name: str, facts: dict[str, Any]) -> float:
        base = 0.6 if facts["task"].startswith("qasper") else 0.2
        return round(base - 0.1 * buckets.index(facts["bucket"]) + 0.1 * facts["task"].endswith("_e"), 3)

    grid = Grid(("infinipot", "truncate"), (4096,), catalysts=("by-task",))
    return kept_run(path, "longbench", grid, rows, score, **changes)


def markdown(*paths: Path, out: Path, mix: bool = False) -> str:
    report(paths, out, mix)
    return (out / "report.md").read_text()


def test_numbers_by_length_and_depth(tmp_path: Path) -> None:
    text = markdown(passkey(tmp_path / "run"), out=tmp_path / "out")
    assert "| cell | 4K | 8K | all |" in text
    assert "| infinipot 1024 general | 80.0 | 80.0 | 80.0 [58.4, 91.9] |" in text
    assert "| truncate 2048 | 100.0 | 0.0 | 50.0 [29.9, 70.1] |" in text
    assert "| full | 8K | 80.0 | 80.0 | 80.0 [49.0, 94.3] |" in text
    # to the first cell, on the same examples
    assert "| truncate 1024 | not used | yes | -30.0 [-53.4, -0.5] |" in text
    assert "- hardware: a small computer" in text
    rows = list(csv.DictReader((tmp_path / "out" / "passkey-by-length.csv").read_text().splitlines()))
    first = {
        "cell": "infinipot 1024 general",
        "column": "4K",
        "score": "80.00",
        "low": "49.02",
        "high": "94.33",
    }
    assert rows[0] == {**first, "rows": "10"}


def test_longbench_is_a_mean_over_tasks_with_its_buckets(tmp_path: Path) -> None:
    text = markdown(longbench(tmp_path / "run"), out=tmp_path / "out")
    assert "| cell | qasper (12) | trec (12) | qasper_e (12) | trec_e (12) | average | rows |" in text
    assert re.search(
        r"\| infinipot 4096 by-task \| 50.0 \| 10.0 \| 60.0 \| 20.0 \| 35.0 \[.*\] \| 35.0 \[", text
    )
    together = text.split("LongBench and LongBench-E together")[1]
    assert re.search(r"\| infinipot 4096 by-task \| 55.0 \| 15.0 \| 35.0 \[", together)
    lengths = text.split("### LongBench-E by length")[1]
    assert "| cell | 0-4k | 4-8k | 8k+ | average |" in lengths
    assert re.search(r"\| truncate 4096 \| 50.0 \| 40.0 \| 30.0 \| 40.0 \[", lengths)


def test_a_task_with_few_rows_is_marked_and_enters_no_average(tmp_path: Path) -> None:
    text = markdown(longbench(tmp_path / "run", few=9), out=tmp_path / "out")
    assert "| qasper_e (12) | trec_e (9)* | average | rows |" in text
    row = re.search(
        r"\| infinipot 4096 by-task \| 50.0 \| 10.0 \| 60.0 \| 20.0 \| ([\d.]+) \[.*\] \| ([\d.]+) \[", text
    )
    assert row
    assert float(row[1]) == 40.0  # of three tasks
    assert row[2] == "36.0"  # of 45 rows
    few = markdown(longbench(tmp_path / "few", count=3, few=3), out=tmp_path / "second")
    assert re.search(rf"{OURS} \| – \| 35.0 \[", few)


def test_known_and_unknown_questions_are_compared_apart(tmp_path: Path) -> None:
    grid = Grid(("infinipot", "cap-only", "truncate"), (1024,), catalysts=("question", "general"))
    text = markdown(passkey(tmp_path / "run", grid), out=tmp_path / "out")
    known, unknown = text.split("### Difference to ")[1:]
    assert known.startswith("infinipot 1024 question, question known")
    assert unknown.startswith("infinipot 1024 general, question unknown")
    assert "| cap-only 1024 question | known | no | 0.0 [" in known
    assert "| truncate 1024 | not used | yes | -30.0 [-53.4, -0.5] |" in known
    assert "general" not in known.split("\n\n")[1]
    assert "| cap-only 1024 general | unknown | no |" in unknown
    assert "question |" not in unknown.split("\n\n")[1].split("\n", 2)[2]
    assert "| truncate 1024 | not used |" in unknown


def test_halves_never_stand_in_one_report(tmp_path: Path) -> None:
    tune, shown, every = (
        longbench(tmp_path / name, options={} if name == "all" else {"part": name})
        for name in ("tune", "report", "all")
    )
    for paths in ((tune, shown), (shown, every), (tune, passkey(tmp_path / "passkey"))):
        with pytest.raises(ConfigError, match="different halves"):
            report(paths, tmp_path / "out", mix=True)
    assert "Rows of the half `report`" in markdown(shown, passkey(tmp_path / "other"), out=tmp_path / "out")
    assert "Rows of both halves" in markdown(every, out=tmp_path / "out")


def test_the_report_names_the_model_s_file(tmp_path: Path) -> None:
    told = {
        "name": "smollm2",
        "weights": "file:" + "a" * 64,
        "device": "cpu",
        "dtype": "float32",
        "format": "plain",
    }
    old = passkey(tmp_path / "old", model=told)
    assert "- file: GGUF Q4_1; how it was held is not told" in markdown(old, out=tmp_path / "out")
    new = passkey(tmp_path / "new", model={**told, "file": "GGUF Q4_1", "held": "float32"})
    text = markdown(new, out=tmp_path / "out")
    assert "- file: GGUF Q4_1\n- held: float32" in text
    assert "different" not in markdown(old, new, out=tmp_path / "out").lower().replace("difference", "")


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    grid = Grid(catalysts=("general", "question"), capacities=(1024, 2048), options={"novelty": ("0", "1")})
    run = passkey(tmp_path / "run", grid)
    written = report([run], tmp_path / "out")
    page = written[0].read_text()
    assert not re.findall(r"""(?:src|href|srcset)\s*=\s*["'](?!data:)""", page)
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    assert page.count("data:image/png;base64,") == 8  # heat, costs, budget, ablation; light and dark
    assert "prefers-color-scheme: dark" in page
    assert {path.name for path in written if path.suffix == ".png"} == {
        "passkey-heat.png",
        "passkey-costs.png",
        "passkey-budget.png",
        "passkey-ablation.png",
    }
    assert page.index("<table class=board>") < page.index("<figure>") < page.index("<h3>By length</h3>")


def test_a_leaderboard_has_a_switch_between_known_and_unknown_questions(tmp_path: Path) -> None:
    grid = Grid(("infinipot", "truncate"), (1024,), catalysts=("question", "general"))
    page = report([passkey(tmp_path / "run", grid)], tmp_path / "out")[0].read_text()
    assert page.count("<input type=radio") == 2
    known, unknown = re.findall(r"<table class=board>.*?</table>", page, re.DOTALL)
    assert "infinipot 1024 question" in known
    assert "general" not in known
    assert "infinipot 1024 general" in unknown
    assert "question" not in unknown
    assert all("truncate 1024" in board for board in (known, unknown))  # uses no question: beside both
    assert known.index("infinipot 1024") < known.index("truncate 1024")  # the best first
    assert "<b>80.0</b> <small>58.4 to 91.9</small>" in known
    assert ">1K</td>" in known  # entries at the peak
    assert ">1.5</td>" in known  # seconds a row
    assert "<th>4K (10)</th>" in known
    alone = report([passkey(tmp_path / "one", Grid(("truncate",), (1024, 2048)))], tmp_path / "two")[
        0
    ].read_text()
    assert "type=radio" not in alone
    assert alone.count("<table class=board>") == 1


def test_differences_are_bars_and_what_excludes_0_has_a_colour(tmp_path: Path) -> None:
    def score(cell: Any, name: str, facts: dict[str, Any]) -> float:
        return float(cell.recipe.preset.name == "infinipot" or facts["trial"] == 0)

    grid = Grid(("infinipot", "truncate"), (1024,), catalysts=("general",))
    run = kept_run(tmp_path / "run", "passkey", grid, PASSKEY, score)
    page = report([run], tmp_path / "out")[0].read_text()
    assert '<span class="span below" style="--at:' in page
    alike = Grid(("infinipot", "cap-only"), (1024,), catalysts=("general",))
    same = report([passkey(tmp_path / "same", alike)], tmp_path / "three")[0].read_text()
    assert '<span class="span chance"' in same


def test_pictures_compare_what_differs_in_one_thing(tmp_path: Path) -> None:
    grids = [
        Grid(("infinipot",), (1024, 2048), catalysts=("general",)),
        Grid(("infinipot",), (1024,), catalysts=("general",), options={"tail": ("distil",)}),
        Grid(("infinipot",), (1024,), catalysts=("general",), options={"tail": ("raw",)}),
        Grid(("truncate", "full"), (1024,)),
    ]
    runs, _ = load([passkey(tmp_path / str(number), grid) for number, grid in enumerate(grids)])
    (section,) = sections(runs)
    assert {name: list(bars) for name, bars in compared(section, "tail").items()} == {
        "infinipot 1024 general units=sentences": ["distil", "fill", "raw"]
    }
    figure = budget(section)(plt)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["full", "infinipot general"]
    assert budget(replace(section, series=section.series[2:])) is None


def test_whole_sentences_are_not_compared_with_single_slots_as_if_the_catalyst_alone_differed(
    tmp_path: Path,
) -> None:
    grids = [
        Grid(("infinipot",), (1024,), catalysts=("question", "general"), options={"units": ("slots",)}),
        Grid(("infinipot",), (1024,), catalysts=("general",), options={"novelty": (0, 0.5, 1)}),
    ]
    runs, _ = load([passkey(tmp_path / str(number), grid) for number, grid in enumerate(grids)])
    (section,) = sections(runs)
    assert {name: list(bars) for name, bars in compared(section, "catalyst").items()} == {
        "infinipot 1024": ["general", "question"]
    }
    assert {name: list(bars) for name, bars in compared(section, "novelty").items()} == {
        "infinipot 1024 general": [0.5, 1.0],
        "infinipot 1024 question": [0.5, 1.0],
        "infinipot 1024 general units=sentences": [0.0, 0.5],
    }


def test_a_cell_with_errors_is_ranked_below_those_that_answered_all(tmp_path: Path) -> None:
    grid = Grid(("infinipot", "truncate"), (1024,), catalysts=("general",))

    def score(cell: Any, name: str, facts: dict[str, Any]) -> float | None:
        if cell.recipe.preset.name == "infinipot":
            return 0.5
        return None if facts["trial"] else 1.0

    (section,) = sections(load([kept_run(tmp_path / "run", "passkey", grid, PASSKEY, score)])[0])
    assert [one.series.name for one in standings(section)] == ["infinipot 1024 general", "truncate 1024"]


def test_earlier_runs_are_told_in_todays_words(tmp_path: Path) -> None:
    """`settle` and `fit` said together what `tail` says now."""
    grid = Grid(("infinipot",), (1024,), catalysts=("general",))
    new = [
        passkey(tmp_path / "new", grid),
        passkey(tmp_path / "raw", replace(grid, options={"tail": ("raw",)})),
    ]
    old = passkey(tmp_path / "old", replace(grid, options={"tail": ("distil",)}))
    for name in ("manifest.json", "rows.jsonl"):
        text = (old / name).read_text()
        text = text.replace("infinipot 1024 tail=distil general", "infinipot 1024 no-fit general")
        (old / name).write_text(text.replace('"tail": "distil"', '"settle": true, "fit": false'))
    assert "no-fit" in (old / "manifest.json").read_text()
    assert '"fit"' in (old / "manifest.json").read_text()
    (section,) = sections(load([*new, old])[0])
    assert list(compared(section, "tail")["infinipot 1024 general units=sentences"]) == [
        "distil",
        "fill",
        "raw",
    ]
    assert "| infinipot 1024 tail=distil general | 80.0 |" in markdown(old, out=tmp_path / "out")


def test_texts_from_outside_are_text_on_the_page(tmp_path: Path) -> None:
    grid = Grid(capacities=(1024,), catalysts=("Say <b>bold</b> & | more",))
    page = report([passkey(tmp_path / "run", grid)], tmp_path / "out")[0].read_text()
    assert "Say &lt;b&gt;bold&lt;/b&gt; &amp; | more" in page
    assert "<b>bold" not in page
    assert "Say <b>bold</b> & \\| more" in (tmp_path / "out" / "report.md").read_text()


def test_runs_of_one_kind_are_compared_and_counted_once(tmp_path: Path) -> None:
    one = passkey(tmp_path / "one", Grid(("infinipot",), (1024,), catalysts=("general",)))
    two = passkey(tmp_path / "two", Grid(("truncate", "infinipot"), (1024,), catalysts=("general",)))
    text = markdown(one, two, out=tmp_path / "out")
    assert text.count("| infinipot 1024 general | 80.0 | 80.0 | 80.0 [58.4, 91.9] |") == 1
    assert "20 rows are in more than one of the folders and are counted once" in text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seed": 1}, "seed (0 and 1)"),
        ({"options": {"trials": 3}}, "options trials (nothing and 3)"),
        ({"versions": {"torch": "1.0"}}, "versions infinipot (0.1.0 and nothing)"),
    ],
)
def test_different_runs_are_not_mixed_unless_asked(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    one, two = passkey(tmp_path / "one"), passkey(tmp_path / "two", **changes)
    with pytest.raises(ConfigError) as caught:
        report([one, two], tmp_path / "out")
    assert says in str(caught.value)
    assert "`mix`" in str(caught.value)
    assert not (tmp_path / "out").exists()
    text = markdown(one, two, out=tmp_path / "out", mix=True)
    assert "Different runs are mixed here, as asked" in text
    assert says in text
    assert says in (tmp_path / "out" / "index.html").read_text()
    assert text.count("| infinipot 1024 general") >= 2 or " · " in text  # never one number of both


def test_a_model_of_another_hash_is_not_mixed_but_another_task_is_welcome(tmp_path: Path) -> None:
    one, two = passkey(tmp_path / "one"), longbench(tmp_path / "two")
    text = markdown(one, two, out=tmp_path / "out")
    assert "## passkey" in text
    assert "## longbench" in text
    assert (tmp_path / "out" / "longbench-2-by-task.csv").exists()
    other = {
        "name": "toy",
        "weights": f"sample:{'c' * 64}",
        "device": "cpu",
        "dtype": "float32",
        "format": "plain",
    }
    third = passkey(tmp_path / "three", model=other)
    with pytest.raises(ConfigError, match=r"model weights \(sample:aaaaaaaa and sample:cccccccc\)"):
        report([one, third], tmp_path / "no")
    text = markdown(one, third, out=tmp_path / "mixed", mix=True)
    assert "infinipot 1024 general · toy float32 plain cccccc" in text


def test_what_is_missing_or_wrong_is_said(tmp_path: Path) -> None:
    def sometimes(cell: Any, name: str, facts: dict[str, Any]) -> float | None:
        return None if facts["trial"] == 4 and cell.recipe.preset.name == "full" else hit(cell, name, facts)

    count = {"count": 25, "sha256": "b" * 64}
    run = kept_run(tmp_path / "run", "passkey", GRID, PASSKEY, sometimes, examples=count)
    with (run / "rows.jsonl").open("a") as stream:
        stream.write('{"kind": "bad", "file": "x.jsonl", "line": 7, "reason": "not JSON"}\n{"kind": "exa')
    text = markdown(run, out=tmp_path / "out")
    assert "- full: 4 examples ended in an error and have no score" in text
    assert "- truncate 1024: only 20 of 25 examples have run" in text
    assert "- x.jsonl, line 7: not JSON" in text
    assert "x.jsonl, line 7: not JSON" in (tmp_path / "out" / "index.html").read_text()


def test_what_has_not_run_on_every_example_is_marked_and_in_no_comparing_picture(tmp_path: Path) -> None:
    grid = Grid(("infinipot",), (1024,), catalysts=("general", "question"))
    run = passkey(tmp_path / "run", grid)
    rows = (run / "rows.jsonl").read_text().splitlines(keepends=True)
    (run / "rows.jsonl").write_text("".join(rows[:-5]))
    written = report([run], tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| infinipot 1024 general | 80.0 |" in text
    assert "| infinipot 1024 question (15 of 20) | 80.0 |" in text
    assert [path.name for path in written if path.suffix == ".png"] == ["passkey-heat.png"]


def test_no_run_and_no_rows_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no run: there is no manifest\.json"):
        report([tmp_path], tmp_path / "out")
    run = kept_run(tmp_path / "run", "passkey", GRID, [], hit)
    with pytest.raises(InputError, match="no rows yet"):
        report([run], tmp_path / "out")


def test_without_matplotlib_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[eval\]'"):
        report([passkey(tmp_path / "run")], tmp_path / "out")


def test_a_handful_of_rows_that_all_say_the_same_tell_nothing_apart(tmp_path: Path) -> None:
    assert not Estimate(-1.0, -1.0, -1.0, 9).excludes_zero
    assert Estimate(-1.0, -1.0, -1.0, 10).excludes_zero
    one = Grid(("infinipot", "truncate"), (1024,), catalysts=("question",))
    score = lambda cell, *_: float(cell.recipe.preset.name == "infinipot")  # noqa: E731
    kept_run(tmp_path / "run", "passkey", one, PASSKEY[:3], score)
    report([tmp_path / "run"], tmp_path / "out")
    told = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "| truncate 1024 | not used | under 10 rows | -100.0 [-100.0, -20.6] |" in told


def test_an_end_that_is_not_0_is_not_printed_as_0() -> None:
    assert Estimate(-0.008, -0.0167, -0.0004, 334).span == "-1.7 to -0.04"
    assert Estimate(0.001, -0.0004, 0.02, 9).span == "-0.04 to 2.0"
    assert Estimate(0.0, 0.0, 0.0, 9).span == "0.0 to 0.0"
    assert [points(share) for share in (0.00049, 0.0005, -0.0000012)] == ["0.05", "0.1", "-0.0001"]
