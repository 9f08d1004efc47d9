"""A complete evaluation without downloads: a toy model, a toy task, and both run in any process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from infinipot.engine import Engine
from infinipot.eval import manifest as manifests
from infinipot.eval.evaluate import Evaluation, Step, Workers, evaluate
from infinipot.eval.folder import opened
from infinipot.eval.grid import Grid
from infinipot.eval.tasks.task import BadRow, Count, Example
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

GRID = Grid(("infinipot", "truncate", "ccd"), (96, 128), catalysts=("Say it again",))


def engine(seed: int = 0) -> Engine:
    """The protocol's model and tokenizer, as small as they come."""
    model: Any = ToyModel(seed=seed)
    tokenizer: Any = ByteTokenizer()
    return Engine("toy", "plain", model, tokenizer)


@dataclass(frozen=True)
class Letters:
    """Texts of letters; an answer's score is its share of small letters: meaningless and repeatable."""

    count: int = 6
    bad: tuple[int, ...] = ()  # lines that are no examples
    question: str = "Which?"
    pause: float = 0.0  # seconds that scoring takes: time to be killed in
    name: str = "letters"
    lengths: tuple[int, ...] = ()

    def describe(self) -> dict[str, Any]:
        return {"lengths": list(self.lengths)} if self.lengths else {}

    def examples(self, count: Count) -> Iterator[Example | BadRow]:
        for line in range(1, self.count + 1):
            if line in self.bad:
                yield BadRow("data/letters.jsonl", line, "field 'text' is empty")
                continue
            text = "".join(chr(97 + (line * step) % 26) for step in range(150 + 40 * line))
            facts = {"length": count(text), "depth": (line % 3) / 2, "task": "odd" if line % 2 else "even"}
            yield Example(f"letters-{line}", text, self.question, ("a",), 8, facts=facts)

    def score(self, prediction: str, example: Example) -> float:
        time.sleep(self.pause)
        return sum(c.islower() for c in prediction) / max(1, len(prediction))


def run(out: Path, task: Any = None, grid: Grid = GRID, seed: int = 0, **options: Any) -> list[Step]:
    """Evaluate to the end."""
    wanted = Evaluation(task or Letters(), grid, out, seed=seed, **options)
    return list(evaluate(wanted, Workers(engine)))


def run_quietly(out: str, pause: float) -> None:
    """For a process of its own: one thread, nothing returned."""
    torch.set_num_threads(1)
    run(Path(out), Letters(pause=pause, bad=(4,)))


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What must not depend on how a run came about: all but the times, in one order."""
    return sorted(
        (
            row.get("cell", ""),
            row.get("example", ""),
            row.get("line", 0),
            str(row.get("score")),
            row.get("prediction"),
        )
        for row in rows
    )


def kept_run(
    path: Path, task: str, grid: Grid, rows: list[tuple[str, dict[str, Any]]], score: Any, **changes: Any
) -> Path:
    """Write a run's folder as if it had been run: all `rows` (id, facts) in every cell, scored by a rule."""
    cells = grid.cells()
    manifest = {
        **manifests.made(
            {cell.name: cell.describe() for cell in cells},
            "a small computer",
            task=task,
            options={},
            seed=0,
            model={
                "name": "toy",
                "weights": f"sample:{'a' * 64}",
                "device": "cpu",
                "dtype": "float32",
                "format": "plain",
            },
            examples={"count": len(rows), "sha256": "b" * 64},
        ),
        **changes,
    }
    with opened(path, manifest) as folder:
        for cell in cells:
            for name, facts in rows:
                told = {"kind": "example", "cell": cell.name, "example": name, "facts": facts}
                folder.append(
                    {**told, "score": score(cell, name, facts), "seconds": {"read": 1, "answer": 0.5}}
                )
    return path
