"""The paper's Figure 7 from a run's document: time to first token and memory against context length.

Lines for every recipe of ours and every peer, what the machine allows at best, and crosses where a
peer had to give up. Draws without a screen; knows nothing of how the numbers were made.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from infinipot.common.plots import COLOURS, MARKERS, pyplot
from infinipot.common.sizes import short

Document = dict[str, Any]
GREY = "#666666"


def draw(told: Document, folder: Path) -> list[Path]:
    """Write figure7.png and figure7.svg if there is anything to draw."""
    lines = _lines(told["rows"])
    if not lines:
        return []
    plots = pyplot("inspect")
    with plots.rc_context({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "infinipot"}):
        figure = plots.figure(figsize=(10.5, 4.9), layout="constrained")
        time, memory = figure.subplots(1, 2)
        _panel(time, lines, lambda row: row["first_token_s"], "time to first token (s)")
        _floor_of_time(time, told)
        _panel(memory, lines, _gigabytes, _memory_title(told))
        _bounds_of_memory(memory, told)
        _legend(figure, time)
        figure.suptitle(_title(told), fontsize=11)
        paths = [folder / f"figure7.{kind}" for kind in ("png", "svg")]
        for path in paths:
            figure.savefig(path, dpi=160)
        plots.close(figure)
    return paths


def _lines(rows: list[Document]) -> dict[str, list[Document]]:
    """Rows of one system and size, by the name they get in the legend."""
    found: dict[str, list[Document]] = {}
    rows = [row for row in rows if not row["failed"] or _ran_out(row)]
    for row in sorted(rows, key=lambda row: (not row["ours"], row["length"])):
        name = row["system"] + (f", {short(row['capacity'])} entries" if row["capacity"] else "")
        found.setdefault(name, []).append(row)
    return found


def _panel(axes: Any, lines: dict[str, list[Document]], value: Callable[..., Any], title: str) -> None:
    """One quantity against length, both on logarithmic scales."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for index, (name, rows) in enumerate(lines.items()):
        points = [(row["length"], value(row)) for row in rows if value(row)]
        ours = rows[0]["ours"]
        below = min(index, 3)  # earlier lines are thinner and on top, so that lines on one another all show
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=COLOURS[index % len(COLOURS)],
            marker=MARKERS[index % len(MARKERS)],
            linestyle="-" if ours else "--",
            linewidth=2 + 1.5 * below if ours else 1.6,
            markersize=6 + 1.5 * below if ours else 6,
            markeredgecolor="white",
            markeredgewidth=0.6,
            label=name,
            zorder=(5 if ours else 4) - 0.1 * index,
        )
    lengths = sorted({row["length"] for rows in lines.values() for row in rows})
    axes.set_xticks(lengths, [short(length) for length in lengths])
    axes.set_xlim(lengths[0] / 1.4, lengths[-1] * 1.4)
    axes.minorticks_off()
    axes.set_xlabel("context length (tokens)")
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    _readable(axes)
    _crosses(axes, lines)


def _readable(axes: Any) -> None:
    """Plain numbers, and at least a decade, so that a flat line looks flat."""
    from matplotlib.ticker import FuncFormatter

    low, high = axes.get_ylim()
    if high / low < 30:
        middle = (low * high) ** 0.5
        low, high = middle / 6, middle * 6
    axes.set_ylim(low / 1.3, high * 1.6)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.10g}"))


def _crosses(axes: Any, lines: dict[str, list[Document]]) -> None:
    """A cross at the top wherever a system ran out of memory, under one another if several did."""
    seen: dict[int, int] = {}
    for index, rows in enumerate(lines.values()):
        for row in filter(_ran_out, rows):
            place = seen.get(row["length"], 0)
            seen[row["length"]] = place + 1
            axes.annotate(
                "✕",
                (row["length"], 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -11 * place),
                textcoords="offset points",
                color=COLOURS[index % len(COLOURS)],
                ha="center",
                va="top",
                fontsize=11,
                fontweight="bold",
            )
    if seen:
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** (0.05 * max(seen.values())))
        axes.plot([], [], linestyle="none", marker="x", color=GREY, label="out of memory")


def _ran_out(row: Document) -> bool:
    return bool(row["failed"].startswith("out of memory"))


def _floor_of_time(axes: Any, told: Document) -> None:
    """What the weights' arithmetic alone takes at the measured ceiling."""
    lengths = sorted({row["length"] for row in told["rows"]})
    work = 2 * told["model"]["parameters"] / told["ceilings"]["matmul_tflops"] / 1e12
    bottom, top = axes.get_ylim()
    axes.set_ylim(min(bottom, work * lengths[0] / 2), top)
    label = "least time: matrix products at the machine's ceiling"
    axes.plot(lengths, [work * n for n in lengths], color=GREY, linestyle=":", linewidth=1.4, label=label)


def _bounds_of_memory(axes: Any, told: Document) -> None:
    """The least, which is the pot itself, and the most, which is what the weights leave."""
    ours = [row["cache_bytes"] for row in told["rows"] if row["ours"] and row["keep"] and row["cache_bytes"]]
    if ours and told["machine"]["device"].startswith("cuda"):
        _mark(axes, min(ours) / 1e9, "the pot itself", below=True)
    most = (told["machine"]["memory_bytes"] - told["model"]["weight_bytes"]) / 1e9
    _, top = axes.get_ylim()
    if most < 30 * top:  # else it would press everything else together
        _mark(axes, most, f"all this machine has beside the weights, {most:,.0f} GB")


def _mark(axes: Any, level: float, words: str, below: bool = False) -> None:
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, level / 1.8), max(high, level * 5))
    axes.axhline(level, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
    axes.annotate(
        words,
        (0.02, level),
        xycoords=("axes fraction", "data"),
        xytext=(0, -3 if below else 3),
        textcoords="offset points",
        color=GREY,
        fontsize=8.5,
        va="top" if below else "bottom",
    )


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = 3 if max(map(len, labels)) < 60 else 2
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _gigabytes(row: Document) -> float | None:
    found = row["memory_bytes"]
    return found / 1e9 if found else None


def _memory_title(told: Document) -> str:
    on_card = told["machine"]["device"].startswith("cuda")
    return "memory beyond the weights (GB)" if on_card else "keys and values held (GB)"


def _title(told: Document) -> str:
    model, machine = told["model"], told["machine"]
    return f"{model['name']}, {model['dtype']}; {machine['name']}"
