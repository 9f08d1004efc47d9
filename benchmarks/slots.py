"""How a pot spends its slots when no question is known: candidates beside single slots, on half of each set.

    python benchmarks/slots.py --dtype bfloat16 --data DIR --part tune --out DIR
    python benchmarks/slots.py --dtype bfloat16 --data DIR --part report --only NAME --out DIR

DATA holds `essays`, `facts`, `books` and `longbench`. Choose on `tune`; then run `report` with the one that
was chosen: single slots, here called the default, always stand beside it. Rows are kept under OUT/SET-PART,
and the same command goes on where it ended. The table says by how much each candidate is above the default,
by rows, and how long its reading took; in a run with `unlike` every cell's takes longer, since all look at
values. Budgets of heads and layers are read in a plain path, all cells of such a run alike, and are to be
compared with even budgets.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import budgets
import candidates
from infinipot.engine import Engine, open_engine
from infinipot.eval.estimates import paired
from infinipot.eval.evaluate import Evaluation, Workers, evaluate
from infinipot.eval.grid import Cell, Grid
from infinipot.eval.results import load, sections
from infinipot.eval.tasks.task import make
from infinipot.reading.catalyst import GENERAL

FACTS = "Repeat every name, number, date and fact of the text above."
KEPT = "Write down everything essential from the passage above so that it can be recalled later."
BOTH = f"{GENERAL} {FACTS}"
POOLED: dict[str, Any] = {"pool": 15, "novelty_pool": 15}
ENDS: dict[str, Any] = {"ends": 0.1}  # share of what stays that is never dropped, at either end
CANDIDATES: dict[str, dict[str, Any]] = {
    "default": {},
    "catalyst facts": {"catalyst": FACTS},
    "pooled": POOLED,
    "pooled, catalyst facts": {**POOLED, "catalyst": FACTS},
    "pooled, more novelty": {**POOLED, "novelty": 0.75},
    "pooled, more novelty, catalyst facts": {**POOLED, "novelty": 0.75, "catalyst": FACTS},
    "pooled by 7": {"novelty_pool": 7},
    "pooled by maximum": {**POOLED, "novelty_pooling": "max"},
    "pooled by 31": {"pool": 31, "novelty_pool": 31},
    "one ranking": {**POOLED, "join": "sum"},
    "one ranking, catalyst facts": {**POOLED, "join": "sum", "catalyst": FACTS},
    "pooled, two catalysts": {**POOLED, "catalyst": BOTH},
    "one ranking, two catalysts": {**POOLED, "join": "sum", "catalyst": BOTH},
    "question known": {"catalyst": "question"},
    "pooled, question known": {**POOLED, "catalyst": "question"},
    "one ranking, question known": {**POOLED, "join": "sum", "catalyst": "question"},
    "capped": {**POOLED, "cap": 6.0},
    "less novelty": {**POOLED, "novelty": 0.25},
    "older first": {**POOLED, "ages": 1.0},
    "heads by maximum": {**POOLED, "heads": "max"},
    "heads by mean": {**POOLED, "heads": "mean"},
    "catalyst kept": {"catalyst": KEPT},
    "share by nats": {"share": "nats"},
    "share by nats, pooled, catalyst facts": {**POOLED, "share": "nats", "catalyst": FACTS},
    "budgets of heads": {"across": "heads"},
    "budgets of layers": {"across": "layers"},
    "budgets by sensitivity": {"across": "shares"},
    "even budgets": {"across": "none"},
    "frozen": {"join": "frozen"},
    "frozen, catalyst facts": {"join": "frozen", "catalyst": FACTS},
    "sentences": {"units": "sentences"},
    "sentences, catalyst facts": {"units": "sentences", "catalyst": FACTS},
    "sentences, one ranking": {"units": "sentences", "join": "sum"},
    "sentences, one ranking, catalyst facts": {"units": "sentences", "join": "sum", "catalyst": FACTS},
    "sentences, shared": {"units": "sentences", "heads": "all"},
    "unlike": {"units": "sentences", "recipe": "unlike"},
    "unlike, three quarters": {"units": "sentences", "recipe": "unlike", "novelty": 0.75},
    "unlike, shared": {"units": "sentences", "recipe": "unlike", "heads": "all"},
    "unlike, shared, three quarters": {
        "units": "sentences",
        "recipe": "unlike",
        "heads": "all",
        "novelty": 0.75,
    },
    "unlike, one ranking": {"units": "sentences", "recipe": "unlike", "join": "sum"},
    "ends reserved": ENDS,
    "sentences, ends reserved": {"units": "sentences", **ENDS},
}
LONGBENCH = "narrativeqa,qasper,multifieldqa_en,hotpotqa,2wikimqa,musique,trec,triviaqa,passage_retrieval_en"


class Cells:
    """The chosen candidates as cells."""

    def __init__(self, names: list[str], capacity: int) -> None:
        self.names, self._capacity = names, capacity

    def cells(self, format: Any = "plain") -> tuple[Cell, ...]:
        """Return a cell for each name, in their order."""
        return tuple(self._cell(dict(CANDIDATES[name]), format) for name in self.names)

    def _cell(self, told: dict[str, Any], format: Any) -> Cell:
        catalyst, capacity = told.pop("catalyst", "general"), self._capacity
        recipe = told.pop("recipe", "candidate")
        if "across" in told:
            told["keep"], recipe = capacity // 2 + budgets.SPARE, "budgeted"
            capacity += budgets.SPARE
        if "ends" in told:
            told["opening"] = told["closing"] = round(told.pop("ends") * (capacity // 2))
        options = {name: (value,) for name, value in told.items()}
        (cell,) = Grid((recipe,), (capacity,), (catalyst,), options).cells(format)
        return cell


def sets(args: argparse.Namespace) -> dict[str, tuple[str, dict[str, Any]]]:
    """Every set by its name: the task, and its options."""
    needle = {"hay": str(args.data / "essays"), "lengths": args.lengths, "depths": args.depths}
    facts = {
        "data": args.data / "facts",
        "hay": str(args.data / "books"),
        "lengths": "16k",
        "texts": args.texts,
    }
    return {
        "essays": ("needle", {**needle, "trials": args.trials}),
        "facts": ("facts", {**facts, "part": args.part}),
        "longbench": ("longbench", {"data": args.data / "longbench", "tasks": args.tasks}),
    }


def named(only: str) -> list[str]:
    """Return the default and the candidates that were asked for, else all that need no calibration."""
    every = [name for name, told in CANDIDATES.items() if told.get("across") != "shares"]
    return list(dict.fromkeys(["default", *(only.split(";") if only else every)]))


def run(name: str, engine: Engine, args: argparse.Namespace, ends: float) -> None:
    """Run one set's cells, and print what came of each."""
    task, options = sets(args)[name]
    cells, out = Cells(named(args.only), args.capacity), args.out / f"{name}-{args.part}"
    half = {} if name == "facts" else {"part": args.part}  # facts know their halves themselves
    wanted = Evaluation(make(task, options, 0), cells, out, **half)  # type: ignore[arg-type]  # a grid by its cells
    for _ in evaluate(wanted, Workers(lambda: engine, args.batch)):
        if time.monotonic() > ends:
            break
    table(name, cells, engine, out)


def table(name: str, cells: Cells, engine: Engine, out: Path) -> None:
    """Print a line for each candidate."""
    (section,) = sections(load([out])[0])
    series = {one.name.partition(" · ")[0]: one for one in section.series}
    usual, took = None, 0.0
    for label, cell in zip(cells.names, cells.cells(engine.format), strict=True):
        found = series.get(cell.name)
        if found is None or not found.rows:
            continue
        scores, reading = found.scores(), sum(row["seconds"]["read"] for row in found.rows) / len(found.rows)
        usual, took = usual or found, took or reading
        more = paired(found.by_example(), usual.by_example())
        beside = f"{100 * more.mean:+5.1f} ({more.span})" if more else ""
        mean = 100 * sum(scores) / len(scores)
        print(
            f"{name:10} {label:38} {mean:5.1f} {len(scores):4} rows {beside:24} {reading / took:.3f} x",
            flush=True,
        )


def calibrate(engine: Engine, args: argparse.Namespace) -> None:
    """Find how sensitive each layer is, or take what the same run found before."""
    kept, text = args.out / "sensitivity.json", args.calibration.read_text("utf-8")
    told = {"text": hashlib.sha256(text.encode()).hexdigest(), "capacity": args.capacity, "model": args.model}
    before = json.loads(kept.read_text("utf-8")) if kept.exists() else None
    if before is None:
        before = {**told, "layers": budgets.sensitivity(engine, text, args.capacity)}
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(before, indent=1), "utf-8")
    if {name: before[name] for name in told} != told:
        raise SystemExit(f"{kept} is of another text, capacity or model: use another --out")
    budgets.Budgeted.shares = before["layers"]


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--part", choices=("tune", "report"), required=True)
    parser.add_argument("--sets", default="essays,facts,longbench")
    parser.add_argument("--only", default="", help="candidates by name, semicolons between; all where empty")
    parser.add_argument(
        "--maximum", action="store_true", help="over query heads, not their mean, in all cells"
    )
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--lengths", default="4k,8k,16k,32k,64k", help="of essays")
    parser.add_argument("--depths", default="0.1,0.5,0.9", help="of the key in essays")
    parser.add_argument(
        "--trials", type=int, default=4, help="of each length and depth, in both halves together"
    )
    parser.add_argument("--texts", type=int, default=2, help="that facts are planted in")
    parser.add_argument("--tasks", default=LONGBENCH, help="of LongBench")
    parser.add_argument("--calibration", type=Path, help="text that says what budgets are by sensitivity")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--out", type=Path, required=True)
    return parser


def main() -> None:
    """Measure as long as there is time."""
    args = options().parse_args()
    if unknown := [name for name in args.only.split(";") if name and name not in CANDIDATES]:
        raise SystemExit(f"there is no candidate '{unknown[0]}': use {', '.join(CANDIDATES)}")
    if "budgets by sensitivity" in named(args.only) and not args.calibration:
        raise SystemExit("budgets by sensitivity need a text: add --calibration FILE")
    candidates.register()
    budgets.register()
    ends = time.monotonic() + 60 * args.minutes
    engine = open_engine(args.model, args.device, args.dtype)
    if args.maximum:
        candidates.take_maximum()
    if args.calibration:
        calibrate(engine, args)
    if any("recipe" in CANDIDATES[name] for name in named(args.only)):
        candidates.see_values()
    if any("across" in CANDIDATES[name] for name in named(args.only)):
        budgets.allow(engine)
    for name in args.sets.split(","):
        run(name, engine, args, ends)


if __name__ == "__main__":
    main()
