"""The paper's tables and figures beside ours, cell by cell, with what agrees and what does not.

    python benchmarks/beside.py --grids docs/results/report-half --out docs/paper.md

The models differ, so levels are not compared, but differences are: what a recipe has more or less than
another one on the same texts. Ours are by rows with their interval. They agree with the paper's where they
exclude 0 on its side, contradict it where they exclude 0 on the other, and else these rows do not tell.
Folders beside that of the grids, GRIDS-MODEL, are further models' (`grids.py --plan models`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from infinipot.eval.results import Series, load, sections
from paper.beside import PAPER, Ours, against, budgets, by_group, by_task, difference, keys, speed, worded
from paper.models import other_models

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
INTRO = """\
# The paper's tables beside ours

Made by `python benchmarks/beside.py` from the paper's numbers (`benchmarks/paper/tables.toml`) and our raw
rows; `make figures` makes it again and compares. The paper has LLaMA-3-8B and Mistral-7B, ours is
`qwen2.5-coder-1.5b` out of a 4-bit GGUF file, so levels differ and differences are compared. *Agrees*: our
interval excludes 0 on the paper's side. *Contradicts*: on the other side. *Not told apart*: it has 0 in it.
*By all rows only*: without tasks of under ten rows it has. *Not without one row*: it has with one
row more left out.
LongBench is its half `report` ([the protocol](evaluation.md#protocol)), {rows} rows; a recipe that has
fewer says so, and its difference is on those. Questions are known while reading in tasks of question
answering, where nothing else is said, as in the paper. InfiniPot is our default: scores are averaged over
seven slots and a text's end stays as long as it fits, which the paper does not do. *Less ours as printed*
compares with `infinipot-paper`, which does neither, and gives the verdict again.
"""
CATALYSTS = """\
All but CaP-Q know no question. All choose slot by slot (`units=slots`), as the paper does, and average scores
over seven slots, as it does not.
"""
HELD = """\
Remade, by earlier code than the tables above, with every number in
[How it works](how-it-works.md#seeing-it): the catalyst's gain over CCD agrees; that CCD alone is as poor as
the window does not. Novelty parts the pots cycle by cycle as in the paper; that it comes nearer to global
scoring is not seen.
"""
LATENCY = """\
Llama-3-8B's shape with random weights on one H200; the paper has Mistral-7B on an A100. Agrees: memory, and
the time of a decoded token, do not depend on the length of the text, and the time to the first token grows
with it. By earlier code than the tables above.
"""
PARTS = """\
Without a catalyst (first and last row) no scores are averaged over slots; in all other rows they are. So
a difference to our default is of more than one thing in those two rows, and one to the method as printed in
all rows.
"""
ENDS = {
    "": "Else a text's end is treated alike (`--tail fill`). TOVA and SirLLM drop half the pot at a time.",
    " tail=distil": "All that distil leave half of a text's end (`--tail distil`).",
}
OTHERS = ("truncated", "whole", "window")
EXTENDED = """\
Self-Extend stretches a window: LLaMA-3's has 8K tokens, ours 32K, which all but a few of these texts fit, so
it has little to give here. Its rows are those that the time allowed, no random part.
"""
STEPS = "StreamingLLM and H2O: ours drop 256 entries at a time."
OURS, PRINTED = "infinipot 4096{tail} by-task", "infinipot-paper 4096 by-task"
TABLE_1 = {
    "PT-8K": "full",
    "SE-27K": "self-extend",
    "SnapKV-4K": "snapkv 4096",
    "TR-4K": "truncate 4096",
    "SirLLM-4K": "sirllm 4096{tail}",
    "TOVA-4K": "tova 4096{tail}",
    "InfiniPot-4K": OURS,
}
LLAMA_2 = {
    "TR-2K": "truncate 4096",
    "Streaming-2K": "streaming-llm 4096 step=256{steps}",
    "H2O-2K": "h2o 4096 step=256{steps}",
    "InfiniPot-2K": OURS,
}
TABLE_2 = {
    "CaP-P": "infinipot 4096{tail} units=slots padding",
    "CaP-U": "infinipot 4096{tail} units=slots unrelated",
    "CaP-G": "infinipot 4096{tail} units=slots general",
    "CaP-Q": "infinipot 4096{tail} by-task",
    "CaP-G1": "infinipot 4096{tail} units=slots general-1",
    "CaP-G2": "infinipot 4096{tail} units=slots general-2",
}
TABLE_3 = {
    "w/o CaP, NuC": "ccd 4096{tail}",
    "0% (CaP only)": "cap-only 4096{tail} by-task",
    "25%": "infinipot 4096{tail} novelty=0.25 by-task",
    "50%": "infinipot 4096{tail} by-task",
    "75%": "infinipot 4096{tail} novelty=0.75 by-task",
    "100% (NuC only)": "nuc-only 4096{tail}",
}
TABLE_4 = {
    "w/o CaP, NuC": "ccd 4096{tail}",
    "w/o NuC": "cap-only 4096{tail} question",
    "InfiniPot": "infinipot 4096{tail} question",
}
TABLE_7 = {
    "InfiniPot": OURS,
    "truncated": "truncate 4096",
    "whole": "full",
    "window": "swa 4096 step=256{steps}",
}
MODEL = "qwen2.5-coder-1.5b"


def page(grids: Path = RESULTS / "report-half", bench: Path = RESULTS / "bench-llama-3-8b-h200.json") -> str:
    """Return the whole page."""
    longbench = _ours(grids / "longbench", TABLE_1)
    printed = longbench.cells.get(PRINTED)
    parts = {
        "Table 1: LongBench": _longbench(longbench, printed),
        "Table 2: catalysts": [CATALYSTS, *_grouped("table2", "CaP-G", longbench.series(TABLE_2))],
        "Table 3: novelty and catalyst": _grouped("table3", "50%", longbench.series(TABLE_3), PARTS, printed),
        "Table 4: pass keys": keys(_noise(grids)),
        "Table 7: other models": _models(grids),
        "The same recipes on other models": other_models(_further(grids)),
        "Figures 2 and 3: what the pot holds": [HELD],
        "Figure 6: memory budgets": budgets(longbench),
        "Figure 7: memory and latency": [LATENCY, *speed(json.loads(bench.read_text("utf-8")))],
    }
    rows = max(len(one.rows) for one in longbench.cells.values())
    lines = [INTRO.format(rows=rows) + ENDS[longbench.tail]]
    for title, part in parts.items():
        if told := list(part):
            lines += [f"\n## {title}\n", *told]
    return "\n".join(lines).rstrip().replace("\n\n\n", "\n\n") + "\n"


def _noise(grids: Path) -> dict[str, Series]:
    """Return Table 4's cells; one of its lengths is a grid of its own."""
    found = _ours(grids / "passkey", TABLE_4).series(TABLE_4)
    if (grids / "passkey-512k").exists():
        further = _ours(grids / "passkey-512k", TABLE_4).series(TABLE_4)
        for label in found.keys() & further.keys():
            found[label] = replace(found[label], rows=found[label].rows + further[label].rows)
    return found


def _longbench(ours: Ours, printed: Series | None) -> Iterator[str]:
    """Yield Table 1: averages of both of the paper's models, then task by task."""
    told = {label: numbers for label, numbers in PAPER["table1"].items() if label in TABLE_1}
    yield from against("LLaMA-3, 4K", "InfiniPot-4K", told, ours.series(TABLE_1), EXTENDED, printed)
    less = {label: numbers for label, numbers in PAPER["table1_llama2"].items() if label in LLAMA_2}
    small = "LLaMA-2, 2K; ours 4K"
    yield from against(small, "InfiniPot-2K", less, ours.series(LLAMA_2), STEPS, printed)
    yield from by_task(told, ours.series(TABLE_1))


def _grouped(
    table: str, base: str, ours: Mapping[str, Series], note: str = "", printed: Series | None = None
) -> Iterator[str]:
    yield from against("recipe", base, PAPER[table], ours, note, printed)
    yield from by_group(PAPER[table], ours)


def _models(grids: Path) -> Iterator[str]:
    yield "| model | InfiniPot less truncated | less whole cache | less sliding window |"
    yield "|---|---|---|---|"
    for name, rows in PAPER["table7"].items():
        gaps = (rows["infinipot"][-1] - rows[one][-1] if one in rows else None for one in OTHERS)
        yield f"| {name} | {' | '.join('–' if gap is None else f'{gap:+.2f}' for gap in gaps)} |"
    for folder in (grids, *_further(grids)):
        ours = _ours(folder / "longbench", TABLE_1 if folder == grids else {"InfiniPot": OURS})
        yield _model(f"`{_named(folder, grids)}`, 4K", ours)


def _model(name: str, ours: Ours) -> str:
    """One of our models' rows of Table 7."""
    base, *others = (ours.series(TABLE_7).get(label) for label in TABLE_7)
    return f"| ours, {name}, by rows | {' | '.join(_gap(base, one) for one in others)} |"


def _gap(base: Series | None, one: Series | None) -> str:
    less = difference(base, one) if base and one else None
    few = f", {less.count} rows" if base and less and less.count < len(base.scores()) else ""
    return worded(less) + few


def _further(grids: Path) -> list[Path]:
    """Return the folders of further models."""
    return sorted(grids.parent.glob(f"{grids.name}-*"), reverse=True)


def _named(folder: Path, grids: Path) -> str:
    """Return the model that a folder's rows are of."""
    return folder.name.removeprefix(grids.name)[1:] or MODEL


def _ours(path: Path, all_of: Mapping[str, str]) -> Ours:
    (section,) = sections(load([path])[0])
    return Ours(section, all_of)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--grids", type=Path, default=RESULTS / "report-half", help="folder that grids.py made"
    )
    parser.add_argument("--bench", type=Path, default=RESULTS / "bench-llama-3-8b-h200.json")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "paper.md")
    args = parser.parse_args(words)
    args.out.write_text(page(args.grids, args.bench), "utf-8")
    print(args.out)


if __name__ == "__main__":
    main()
