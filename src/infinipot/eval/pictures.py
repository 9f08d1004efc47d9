"""Pictures of a section: needle heat maps, score against budget, ablation bars.

Each is drawn twice, for light and for dark pages. The only importer of matplotlib here, and a late one.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from infinipot.common.sizes import short
from infinipot.errors import ConfigError
from infinipot.eval.results import Section, Series
from infinipot.eval.stats import Estimate, estimate, macro
from infinipot.eval.tables import shown, values

INK = {"light": "#1f2328", "dark": "#d7dce2"}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999999")
MARKS = "osD^vPX*"
ABLATIONS = ("novelty", "catalyst", "pool", "keep", "tail")
ACROSS = 3  # heat maps in a row
DPI = 130
Draw = Callable[[], Any]  # a figure


@dataclass(frozen=True)
class Picture:
    """A PNG for each kind of page."""

    name: str  # its file's
    caption: str
    light: bytes
    dark: bytes


def pictures(section: Section) -> Iterator[Picture]:
    """Yield the pictures that the section has the rows for."""
    plots = _pyplot()
    kinds: list[tuple[str, str, Callable[[Any, Section], Draw | None]]] = [
        ("heat", "Score by length and depth.", _heat),
        ("budget", "Score against the capacity; bars are 95% intervals.", _budget),
        ("ablation", "One setting changed, all others the same; bars are 95% intervals.", _ablation),
    ]
    for name, caption, make in kinds:
        if draw := make(plots, section if name == "heat" else section.finished):
            yield Picture(name, caption, _png(plots, draw, "light"), _png(plots, draw, "dark"))


def score(one: Series) -> Estimate | None:
    """The number of a series in pictures: the mean over tasks where there are several, else over rows."""
    tasks = dict.fromkeys(row["facts"].get("task") for row in one.rows)
    return macro([one.scores(task=task) for task in tasks]) if len(tasks) > 1 else estimate(one.scores())


def _pyplot() -> Any:
    try:
        import matplotlib as mpl
    except ImportError:
        raise ConfigError("a report's pictures need matplotlib: pip install 'infinipot[eval]'") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _png(plots: Any, draw: Draw, page: str) -> bytes:
    ink = INK[page]
    look = {
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": ink,
        "ytick.color": ink,
        "font.size": 9,
        "legend.frameon": False,
    }
    with plots.rc_context(look):
        figure, stream = draw(), io.BytesIO()
        figure.savefig(stream, format="png", dpi=DPI, transparent=True, metadata={"Software": None})
        plots.close(figure)
    return stream.getvalue()


def _heat(plots: Any, section: Section) -> Draw | None:
    lengths, depths = values(section, "length"), values(section, "depth")
    if len(lengths) * len(depths) < 2 or not all(isinstance(x, int | float) for x in [*lengths, *depths]):
        return None
    if len(depths) > 2 * ACROSS * ACROSS:  # a depth of its own for every example is no grid
        return None

    def draw() -> Any:
        count = len(section.series)
        wide, high = min(ACROSS, count), -(-count // ACROSS)
        size = (0.6 + wide * max(2.4, 0.55 * len(lengths)), 0.5 + high * (1.0 + 0.42 * len(depths)))
        figure, axes = plots.subplots(high, wide, figsize=size, squeeze=False, layout="constrained")
        for place, (one, axis) in enumerate(zip(section.series, axes.flat, strict=False)):
            _map(axis, one, lengths, depths, first=place % wide == 0, last=place + wide >= count)
        for axis in list(axes.flat)[count:]:
            axis.set_axis_off()
        return figure

    return draw


def _map(axis: Any, one: Series, lengths: list[Any], depths: list[Any], first: bool, last: bool) -> None:
    found = [[estimate(one.scores(length=n, depth=d)) for n in lengths] for d in depths]
    grid = [[100 * cell.mean if cell else float("nan") for cell in row] for row in found]
    axis.imshow(grid, vmin=0, vmax=100, cmap="viridis", aspect="auto")
    for y, row in enumerate(grid):
        for x, value in enumerate(row):
            if value == value:
                ink = "#111111" if value > 60 else "#ffffff"
                axis.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=8, color=ink)
    axis.set_title(_folded(one.name, 28))
    axis.set_xticks(range(len(lengths)), [shown(n) for n in lengths] if last else [])
    axis.set_yticks(range(len(depths)), [shown(d) for d in depths] if first else [])
    axis.set_xlabel("tokens" if last else "")
    axis.set_ylabel("depth" if first else "")
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)


def _budget(plots: Any, section: Section) -> Draw | None:
    lines: dict[str, dict[int, Estimate]] = defaultdict(dict)
    flat: dict[str, Estimate] = {}
    for one in section.series:
        found, capacity = score(one), one.cell.get("capacity")
        if found and capacity:
            lines[_without(one, "capacity")][capacity] = found
        elif found:
            flat[one.name] = found
    lines = {name: line for name, line in lines.items() if len(line) > 1}
    if not lines:
        return None
    capacities = sorted({capacity for line in lines.values() for capacity in line})

    def draw() -> Any:
        figure, axis = plots.subplots(figsize=(7.4, 4.0), layout="constrained")
        for index, (name, line) in enumerate(lines.items()):
            xs = sorted(line)
            spread = 1 + 0.012 * (index - len(lines) / 2)  # so that bars do not hide each other
            axis.errorbar(
                [x * spread for x in xs],
                [100 * line[x].mean for x in xs],
                yerr=_errors([line[x] for x in xs]),
                label=_folded(name, 40),
                marker=MARKS[index % len(MARKS)],
                color=COLOURS[index % len(COLOURS)],
                markersize=5,
                linewidth=1.6,
                elinewidth=0.9,
            )
        for index, (name, found) in enumerate(flat.items()):
            style = ("--", ":", "-.")[index % 3]
            axis.axhline(100 * found.mean, color="#888888", linestyle=style, linewidth=1.2, label=name)
        axis.set_xscale("log", base=2)
        axis.set_xticks(capacities, [short(capacity) for capacity in capacities], minor=False)
        axis.minorticks_off()
        axis.set_xlabel("capacity, entries")
        _scored(axis)
        figure.legend(loc="outside right upper")
        return figure

    return draw


def _ablation(plots: Any, section: Section) -> Draw | None:
    found = {knob: groups for knob in ABLATIONS if (groups := _groups(section, knob))}
    if not found:
        return None

    def draw() -> Any:
        ratios = [0.9 + sum(0.3 * len(bars) + 0.25 for bars in groups.values()) for groups in found.values()]
        figure, axes = plots.subplots(
            len(found),
            1,
            figsize=(7.4, sum(ratios)),
            squeeze=False,
            height_ratios=ratios,
            layout="constrained",
        )
        for axis, (knob, groups) in zip(axes.flat, found.items(), strict=True):
            _bars(axis, knob, groups)
        axes.flat[-1].set_xlabel("score")
        return figure

    return draw


def _bars(axis: Any, knob: str, groups: dict[str, dict[Any, Estimate]]) -> None:
    """Bars that lie, so that names of any length can be read; one colour a value."""
    known = list(dict.fromkeys(value for bars in groups.values() for value in bars))
    y, places, names = 0.0, [], []
    for group, bars in groups.items():
        if len(groups) > 1:
            axis.text(0.5, y + 0.1, group, fontsize=8, va="center")
            y += 0.8
        for value, found in bars.items():
            _bar(axis, y, found, COLOURS[known.index(value) % len(COLOURS)])
            places.append(y)
            names.append(_folded(("off", "on")[value] if isinstance(value, bool) else shown(value), 30))
            y += 1
        y += 0.4
    axis.set_yticks(places, names)
    axis.set_xlim(0, 107)
    axis.set_xticks(range(0, 101, 20))
    axis.set_ylim(y - 0.8, -0.6 if len(groups) == 1 else -0.4)
    axis.tick_params(axis="y", length=0)
    axis.set_title(knob if len(groups) > 1 else f"{knob}: {next(iter(groups))}", loc="left")


def _bar(axis: Any, y: float, found: Estimate, colour: str) -> None:
    line = {"elinewidth": 0.9, "ecolor": "#888888"}
    axis.barh(y, 100 * found.mean, 0.8, xerr=_errors([found]), color=colour, error_kw=line)
    axis.text(100 * found.high + 1, y, f"{100 * found.mean:.1f}", va="center", fontsize=8)


def _groups(section: Section, knob: str) -> dict[str, dict[Any, Estimate]]:
    """Series that differ in one setting only, where there are at least two of a kind."""
    groups: dict[str, dict[Any, Estimate]] = defaultdict(dict)
    for one in section.series:
        found, value = score(one), one.cell.get(knob)
        if found and value is not None:
            groups[_without(one, knob)][value] = found
    if (
        knob == "novelty"
    ):  # where all is chosen by novelty no catalyst is asked: that is one end of every sweep
        for name in [name for name in groups if len(groups[name]) == 1 and 1.0 in groups[name]]:
            for other in (other for other in groups if other.startswith(f"{name} ")):
                groups[other] |= groups[name]
    return {
        name: dict(sorted(bars.items(), key=lambda bar: (isinstance(bar[0], str), bar[0])))
        for name, bars in groups.items()
        if len(bars) > 1
    }


def _without(one: Series, knob: str) -> str:
    """The name of a series with one setting left out: the same for all that differ in it alone."""
    cell, words = one.cell, one.name.split()
    if knob == "capacity":
        words.remove(str(cell["capacity"]))
        if cell["keep"] and f"keep={cell['keep']}" in words:
            words[words.index(f"keep={cell['keep']}")] = f"keep={cell['keep'] / cell['capacity']:g}"
    elif knob == "catalyst":
        return one.name.replace(str(cell["catalyst"]), "").replace('""', "").strip()
    else:
        words = [
            word for word in words if word not in (knob, f"no-{knob}") and not word.startswith(f"{knob}=")
        ]
    return " ".join(words)


def _errors(found: list[Estimate]) -> list[list[float]]:
    return [[100 * (e.mean - e.low) for e in found], [100 * (e.high - e.mean) for e in found]]


def _scored(axis: Any) -> None:
    axis.set_ylabel("score")
    axis.set_ylim(bottom=0)
    axis.grid(axis="y", color="#888888", alpha=0.25, linewidth=0.7)


def _folded(text: str, width: int) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width, break_on_hyphens=False)) or text
