"""A text that many questions share is read once, and every answer is as if it had been read for it."""

from dataclasses import replace
from typing import Any

import pytest

import toy_eval as toy
from infinipot.core.cuda.graphs import Graphs
from infinipot.eval.grid import Grid
from infinipot.eval.runner import Job, Outcome, Runner
from infinipot.eval.tasks.task import Example
from infinipot.reading.reader import Reader
from infinipot.reading.stage import Stage
from infinipot.recipes.recipe import Recipe

LINE = "The harbour lay still and the boats did not move at all that morning. "
NAMES = ("Ottilie", "Marlow", "Quint", "Ahab")
TEXTS = [
    "\n\n".join(LINE * 6 + f"{name} keeps the {place} key." for name in NAMES) for place in ("lower", "upper")
]
EXAMPLES = [
    Example(
        f"{number}-{name}", text, f"Which key has {name}?", ("x",), 6, query=f"Key of {name}?", shared=True
    )
    for number, text in enumerate(TEXTS)
    for name in NAMES
]
GRID = Grid(("infinipot",), (512,), catalysts=("general",), options={"recall": (0, 128)})


@pytest.fixture
def texts_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that readers were given to read, in order."""
    found: list[str] = []
    real = Reader.read

    def noted(reader: Reader, text: str) -> object:
        found.append(text)
        return real(reader, text)

    monkeypatch.setattr(Reader, "read", noted)
    return found


def run(grid: Grid, examples: list[Example], batch: int = 1) -> list[Outcome]:
    jobs = [Job(cell, example) for cell in grid.cells() for example in examples]
    return [outcome for _, outcome in Runner(toy.engine(), batch).run(jobs)]


@pytest.mark.parametrize("recipe", ["infinipot", "nuc-only", "sirllm", "streaming-llm", "h2o-half"])
def test_readers_of_a_batch_share_what_is_captured(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = {"step": (64,)} if recipe in ("streaming-llm", "h2o-half") else {}
    grid = Grid((recipe,), (512,), catalysts=("question",), options=step)
    plain, real, stages = told(run(grid, EXAMPLES)), Recipe.reader, []

    def capturing(recipe: Recipe, *settings: Any) -> Reader:
        reader = real(recipe, *settings)
        reader.session.graphs = Graphs(reader.pot, capture=False)
        return reader

    def noted(stage: Stage, *given: Any) -> Any:
        stages.append(stage)
        return on_stage(stage, *given)

    on_stage = Stage.run
    monkeypatch.setattr(Recipe, "reader", capturing)
    monkeypatch.setattr(Stage, "run", noted)
    assert told(run(grid, EXAMPLES, 3)) == plain
    assert len(stages) > len(EXAMPLES)
    assert len({id(stage) for stage in stages}) == 1
    stages.clear()
    assert told(run(grid, EXAMPLES[:2], 1)) == plain[:2]
    assert not stages


def told(outcomes: list[Outcome]) -> list[Outcome]:
    return [replace(outcome, read_seconds=0.0, answer_seconds=0.0) for outcome in outcomes]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_shared_text_is_read_once_a_cell_and_answers_are_the_same(
    batch: int, texts_read: list[str]
) -> None:
    shared = run(GRID, EXAMPLES, batch)
    assert texts_read == TEXTS * 2  # each once for every cell
    texts_read.clear()
    alone = run(GRID, [replace(example, shared=False) for example in EXAMPLES], 1)
    assert len(texts_read) == 2 * len(EXAMPLES)
    assert told(shared) == told(alone)
    assert not any(outcome.error for outcome in shared)
    assert [bool(outcome.recalled) for outcome in shared] == [False] * 8 + [True] * 8
    assert len({outcome.prediction for outcome in shared}) > 2


def test_everything_read_again_leaves_the_shared_text_as_it_was(texts_read: list[str]) -> None:
    grid = replace(GRID, options={"recall": ("all",)})
    shared = run(grid, EXAMPLES[:3])
    assert len(texts_read) == 1
    assert told(shared) == told(run(grid, [replace(example, shared=False) for example in EXAMPLES[:3]]))
    assert [outcome.recalled for outcome in shared] == [len(TEXTS[0].encode())] * 3


def test_a_text_is_read_again_where_the_catalyst_is_the_question(texts_read: list[str]) -> None:
    run(replace(GRID, catalysts=("question",)), EXAMPLES[:3])
    assert texts_read == TEXTS[:1] * 6


def test_an_equal_text_that_is_not_the_same_one_is_read(texts_read: list[str]) -> None:
    other = "".join(list(TEXTS[0]))
    assert other is not TEXTS[0]
    run(replace(GRID, options={}), [EXAMPLES[0], replace(EXAMPLES[1], text=other)])
    assert texts_read == TEXTS[:1] * 2


def test_one_that_fails_does_not_spoil_the_text_of_the_others() -> None:
    long = replace(EXAMPLES[1], question="Which key? " * 200)
    found = run(replace(GRID, options={}), [EXAMPLES[0], long, EXAMPLES[2]])
    assert [bool(outcome.error) for outcome in found] == [False, True, False]
    alone = run(replace(GRID, options={}), [EXAMPLES[2]])
    assert told(found)[2] == told(alone)[0]


def test_cells_with_other_amounts_of_recall_have_other_names() -> None:
    grid = Grid(("infinipot",), (4096,), catalysts=("general",), options={"recall": ("0", "1k", "all")})
    assert [cell.name for cell in grid.cells()] == [
        "infinipot 4096 general",
        "infinipot 4096 recall=1024 general",
        "infinipot 4096 recall=all general",
    ]


def test_a_method_is_measured_alone_unless_recall_is_asked_for() -> None:
    for cell in Grid(("infinipot", "streaming-llm", "h2o")).cells():
        assert cell.recipe.config.recall == 0
        assert cell.recipe.config.recalled == 0
        assert cell.describe()["recall"] == 0
    (passages,) = Grid(("passages",)).cells()
    assert passages.recipe.config.recalled > 0  # there is nothing else to measure
