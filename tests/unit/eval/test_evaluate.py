"""Runs and their folders: every row once, whatever happens on the way."""

from __future__ import annotations

import json
import lzma
import multiprocessing
import random
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

import toy_eval
from infinipot.errors import ConfigError, InfiniPotError, InputError
from infinipot.eval.evaluate import Evaluation, Workers, evaluate, model_facts
from infinipot.eval.folder import LOCK, MANIFEST, ROWS, read_manifest, read_rows
from infinipot.eval.grid import Grid
from infinipot.eval.runner import Answer, Job, Runner
from infinipot.eval.tasks.task import Example, half
from toy_eval import GRID, Letters, run, told


def test_every_example_of_every_cell_has_its_row(tmp_path: Path) -> None:
    steps = run(tmp_path)
    assert [(step.done, step.total) for step in steps] == [(done, 36) for done in range(37)]
    assert steps[-1].work == pytest.approx(1)
    rows, manifest = read_rows(tmp_path), read_manifest(tmp_path)
    assert [(row["cell"], row["example"]) for row in rows] == [
        (cell.name, f"letters-{line}") for cell in GRID.cells() for line in range(1, 7)
    ]
    assert {"prediction", "tokens_read", "cycles", "entries", "facts", "score", "seconds"} <= set(rows[0])
    assert rows[0]["tokens_read"] == rows[0]["facts"]["length"] == 190
    assert rows[0]["cycles"] > 3
    assert rows[0]["entries"] <= 96
    assert manifest["cells"]['infinipot 96 "Say it again"']["keep"] == 48
    assert manifest["model"]["dtype"] == "float32"
    assert manifest["examples"]["count"] == 6


def test_a_reader_that_serves_again_answers_as_a_new_one_would(tmp_path: Path) -> None:
    run(tmp_path)
    engine = toy_eval.engine()
    examples = list(Letters().examples(len))
    fresh = {
        job.key: Runner(engine).one(job).prediction
        for cell in GRID.cells()
        for e in examples
        for job in [Job(cell, e)]
    }
    assert {(row["cell"], row["example"]): row["prediction"] for row in read_rows(tmp_path)} == fresh


def test_a_run_cut_anywhere_ends_with_the_same_rows(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    for stop in (0, 1, 7, 35):
        steps = evaluate(Evaluation(Letters(), GRID, tmp_path / "cut"), Workers(toy_eval.engine))
        for step in steps:
            if step.done == stop:
                steps.close()
                break
    last = run(tmp_path / "cut")
    assert [step.done for step in last] == [35, 36]
    assert told(read_rows(tmp_path / "cut")) == told(read_rows(tmp_path / "whole"))
    assert len(read_manifest(tmp_path / "cut")["sessions"]) == 5


@pytest.mark.parametrize("times", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_run_killed_many_times_ends_with_the_same_rows(tmp_path: Path, times: int) -> None:
    run(tmp_path / "whole", Letters(bad=(4,)))
    context, source = multiprocessing.get_context("forkserver"), random.Random(5)
    context.set_forkserver_preload(["infinipot.eval.evaluate", "infinipot.testing.model"])
    out, kills = tmp_path / "killed", 0
    while kills < times:
        process = context.Process(target=toy_eval.run_quietly, args=(str(out), 0.25))
        process.start()
        before = len(read_rows(out))
        while kills % 3 and process.is_alive() and len(read_rows(out)) <= before:
            process.join(0.01)  # most are killed after a row, some before
        process.join(source.uniform(0, 0.4))
        assert process.is_alive(), "the run ended before it was killed"
        process.kill()
        process.join()
        kills += 1
    assert 0 < len(read_rows(out)) < 31
    run(out, Letters(bad=(4,)))
    assert told(read_rows(out)) == told(read_rows(tmp_path / "whole"))
    assert len(read_rows(out)) == 31


@pytest.mark.parametrize("torn", [b'{"kind": "exam', b"\xc3", b'{"kind": "example", "cell": "x"}'])
def test_half_a_line_is_dropped(tmp_path: Path, torn: bytes) -> None:
    run(tmp_path)
    rows = told(read_rows(tmp_path))
    whole = (tmp_path / ROWS).read_bytes()
    lines = whole.split(b"\n")
    (tmp_path / ROWS).write_bytes(b"\n".join(lines[:20]) + b"\n" + torn)
    assert len(read_rows(tmp_path)) == 20
    assert len(run(tmp_path)) == 17
    assert told(read_rows(tmp_path)) == rows


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    run(tmp_path)
    lines = (tmp_path / ROWS).read_bytes().split(b"\n")
    (tmp_path / ROWS).write_bytes(b"\n".join([lines[0], b"{}", *lines[2:]]))
    with pytest.raises(InputError, match=r"rows.jsonl line 2 is no row"):
        run(tmp_path)


def test_another_run_is_refused_and_says_what_differs(tmp_path: Path) -> None:
    task = Letters(lengths=(8, 16))
    run(tmp_path, task)
    before = (tmp_path / MANIFEST).read_bytes(), (tmp_path / ROWS).read_bytes()
    with pytest.raises(ConfigError, match=r"different there and here: seed \(0 and 1\): use another `out`"):
        run(tmp_path, task, seed=1)
    with pytest.raises(ConfigError, match=r"options lengths \(8,16 and 8\)"):
        run(tmp_path, Letters(lengths=(8,)))
    with pytest.raises(ConfigError, match=r"options limit \(nothing and 2\), examples count \(6 and 4\)"):
        run(tmp_path, task, limit=2)
    with pytest.raises(ConfigError, match=r"examples sha256 \(\w{8} and \w{8}\)"):
        run(tmp_path, replace(task, question="What?"))
    wanted = Evaluation(task, GRID, tmp_path)
    with pytest.raises(ConfigError, match=r"model weights \(sample:\w{8} and sample:\w{8}\)"):
        list(evaluate(wanted, Workers(lambda: toy_eval.engine(seed=1))))
    assert before == ((tmp_path / MANIFEST).read_bytes(), (tmp_path / ROWS).read_bytes())


def test_further_cells_extend_a_run(tmp_path: Path) -> None:
    run(tmp_path, grid=replace(GRID, recipes=("infinipot",)))
    steps = run(tmp_path, grid=replace(GRID, recipes=("truncate",), capacities=(96,)))
    assert [(step.done, step.total) for step in steps][:2] == [(0, 6), (1, 6)]
    assert len(read_rows(tmp_path)) == 18
    assert len(read_manifest(tmp_path)["cells"]) == 3
    assert run(tmp_path, grid=replace(GRID, recipes=("infinipot",)))[0].done == 12


def test_rows_without_a_manifest_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_text("{}\n")
    with pytest.raises(ConfigError, match=r"rows and no manifest.json"):
        run(tmp_path)


def test_two_processes_cannot_write_to_one_folder(tmp_path: Path) -> None:
    with FileLock(tmp_path / LOCK), pytest.raises(ConfigError, match=r"another process is writing"):
        run(tmp_path)


def test_bad_rows_are_reported_once_and_kill_nothing(tmp_path: Path) -> None:
    run(tmp_path, Letters(bad=(2, 5)))
    run(tmp_path, Letters(bad=(2, 5)))
    rows = read_rows(tmp_path)
    assert [row for row in rows if row["kind"] == "bad"] == [
        {"kind": "bad", "file": "letters.jsonl", "line": line, "reason": "field 'text' is empty"}
        for line in (2, 5)
    ]
    assert len(rows) == 2 + 4 * 6
    with pytest.raises(InputError, match=r"no example can be used: data/letters.jsonl, line 1: field 'text'"):
        run(tmp_path, Letters(count=2, bad=(1, 2)))


class OneLongQuestion(Letters):
    def examples(self, count):
        for index, example in enumerate(super().examples(count)):
            yield replace(example, question="Why? " * 40) if index == 2 else example


def test_an_example_that_cannot_run_is_a_row_with_its_error(tmp_path: Path) -> None:
    run(tmp_path, OneLongQuestion(), grid=Grid(("ccd",), (96,)))
    wrong = [row for row in read_rows(tmp_path) if row.get("error")]
    assert [(row["example"], row["score"]) for row in wrong] == [("letters-3", None)]
    assert "a question of 201 tokens is too long for a pot of 96" in wrong[0]["error"]
    assert len(read_rows(tmp_path)) == 6


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (Letters(question="Why? " * 40), "ccd 96: a question of 201 tokens is too long for a pot of 96"),
        (Letters(count=0), "the task has no examples"),
    ],
)
def test_what_no_example_could_do_is_refused_before_the_run(tmp_path: Path, task: Letters, says: str) -> None:
    with pytest.raises(InfiniPotError, match=says):
        run(tmp_path / "out", task, grid=Grid(("full", "ccd"), (96,)))
    assert not (tmp_path / "out").exists()


def test_out_of_memory_is_that_examples_error_and_a_fault_of_ours_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(Grid(("ccd",), (96,)).cells()[0], next(iter(Letters().examples(len))))

    def fail(message: str) -> None:
        runner = Runner(toy_eval.engine())
        runner.engine.model.forward = lambda *_: (_ for _ in ()).throw(RuntimeError(message))
        return runner.one(job)

    assert fail("DefaultCPUAllocator: can't allocate memory").error == "out of memory"
    with pytest.raises(RuntimeError, match="a bug"):
        fail("a bug")


def test_a_half_is_the_same_in_every_run_and_both_are_all(tmp_path: Path) -> None:
    grid, names = Grid(("truncate",), (96,)), {}
    for part in ("tune", "report", "all"):
        run(tmp_path / part, Letters(count=12), grid=grid, part=part)
        names[part] = {row["example"] for row in read_rows(tmp_path / part)}
    assert names["tune"] | names["report"] == names["all"]
    assert not names["tune"] & names["report"]
    assert all(half(name) == "tune" for name in names["tune"])
    assert names["tune"]
    assert names["report"]
    assert read_manifest(tmp_path / "tune")["options"]["part"] == "tune"
    assert "part" not in read_manifest(tmp_path / "all")["options"]
    with pytest.raises(ConfigError, match=r"options part \(tune and report\)"):
        run(tmp_path / "tune", Letters(count=12), grid=grid, part="report")


def test_the_manifest_names_the_model_s_file_and_how_it_is_held(tmp_path: Path) -> None:
    run(tmp_path, grid=Grid(("truncate",), (96,)))
    assert {"file", "held"} <= set(read_manifest(tmp_path)["model"])


def test_limit_takes_the_first_of_every_part(tmp_path: Path) -> None:
    run(tmp_path, limit=1, grid=Grid(("truncate",), (96,)))
    assert [row["example"] for row in read_rows(tmp_path)] == ["letters-1", "letters-2"]


def test_two_examples_of_one_name_are_refused(tmp_path: Path) -> None:
    class Twins(Letters):
        def examples(self, count):
            return (replace(example, id="same") for example in super().examples(count))

    with pytest.raises(InputError, match="two examples are called 'same'"):
        run(tmp_path, Twins())


def test_an_answer_of_one_line_ends_at_a_newline_but_the_first() -> None:
    def answer(text: str, one_line: bool = True) -> tuple[str, int]:
        said = Answer(toy_eval.engine().reader(Grid(("ccd",), (96,)).cells()[0].recipe), one_line)
        taken = next((n for n, token in enumerate(text.encode(), 1) if not said.push(token)), len(text))
        return said.whole(), taken

    assert answer("\nyes it is\nor not") == ("\nyes it is", 11)
    assert answer("yes\nno") == ("yes", 4)
    assert answer("yes no") == ("yes no", 6)
    assert answer("yes\nno", one_line=False) == ("yes\nno", 6)


@pytest.mark.parametrize("batch", [2, 3, 8])
def test_jobs_run_together_have_the_rows_of_jobs_run_alone(tmp_path: Path, batch: int) -> None:
    grid = Grid(("infinipot", "truncate", "full"), (256,), catalysts=("question",))
    rows = []
    for size in (1, batch):
        wanted = Evaluation(Letters(question="Which one? " * 2), grid, tmp_path / str(size))
        list(evaluate(wanted, Workers(toy_eval.engine, size)))
        rows.append(read_rows(tmp_path / str(size)))
    assert told(rows[0]) == told(rows[1])
    assert [row["entries"] for row in rows[0]] == [row["entries"] for row in rows[1]]


def test_one_that_fails_in_a_batch_fails_alone() -> None:
    cell = Grid(("infinipot",), (256,), catalysts=("question",)).cells()[0]
    examples = list(Letters().examples(len))
    long = replace(examples[1], question="why " * 200)
    jobs = [Job(cell, example) for example in (examples[0], long, examples[2])]
    outcomes = [outcome for _, outcome in Runner(toy_eval.engine(), batch=3).run(jobs)]
    assert [bool(outcome.error) for outcome in outcomes] == [False, True, False]
    assert outcomes[2].prediction == Runner(toy_eval.engine()).one(jobs[2]).prediction


def test_one_line_and_bare_and_plain_reach_the_reader() -> None:
    cell = Grid(("ccd",), (96,)).cells("chat")[0]
    example = Example("x", "some text", "Q?", ("a",), 40, bare=True, chat=False, one_line=True)
    runner = Runner(toy_eval.engine())
    outcome = runner.one(Job(cell, example))
    assert "\n" not in outcome.prediction[1:]
    reader = toy_eval.engine().reader(replace(cell.recipe, format="plain"), "Q?", bare=True)
    reader.read("some text")
    whole = "".join(reader.answer("Q?", toy_eval_generation(40)))
    assert whole.startswith(outcome.prediction)


def toy_eval_generation(tokens: int) -> object:
    from infinipot.reading.sampling import Generation

    return Generation(tokens)


def test_weights_are_recognised_whatever_their_dtype() -> None:
    one, same, other, half = (toy_eval.engine(seed) for seed in (0, 0, 1, 0))
    half.model.embedding = half.model.embedding.bfloat16()
    half.model.blocks = [{k: v.bfloat16() for k, v in block.items()} for block in half.model.blocks]
    known = [model_facts(engine)["weights"] for engine in (one, same, other, half)]
    assert known[0].startswith("sample:")
    assert known[0] == known[1] == known[3] != known[2]
    named = model_facts(replace(one, name="smollm2"))
    assert named["weights"].startswith("file:b179c9523d")


def test_rows_are_plain_json(tmp_path: Path) -> None:
    run(tmp_path)
    assert all(json.loads(line) for line in (tmp_path / ROWS).read_text().splitlines())


def test_a_run_that_was_put_away_packed_is_read_but_not_begun_again(tmp_path: Path) -> None:
    run(tmp_path)
    rows, plain = read_rows(tmp_path), tmp_path / ROWS
    (tmp_path / f"{ROWS}.xz").write_bytes(lzma.compress(plain.read_bytes()))
    plain.unlink()
    assert read_rows(tmp_path) == rows
    with pytest.raises(ConfigError, match=r"packed: unpack rows.jsonl.xz to go on"):
        run(tmp_path)
    (tmp_path / f"{ROWS}.xz").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"cannot read .*rows.jsonl.xz"):
        read_rows(tmp_path)
