"""Plots of a section: needle heat maps, score against budget, ablation bars; for light and for dark pages."""

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from infinipot.common.plots import COLOURS, GREY, MARKERS, Draw, Picture, picture, pyplot
from infinipot.common.sizes import short
from infinipot.eval.estimates import Estimate
from infinipot.eval.leaderboard import standings
from infinipot.eval.results import KNOWN, UNKNOWN, UNUSED, Section, Series
from infinipot.eval.tables import shown, values

ABLATIONS = ("novelty", "catalyst", "pool", "keep", "tail")
ACROSS = 3  # heat maps in a row
WHOLE = " units=sentences"  # another setting, which follows from the catalyst: a name may not say it
MOST_DEPTHS = 18  # of a heat map: a depth of its own for every example is no grid
LINE = {"markersize": 5, "linewidth": 1.6, "elinewidth": 0.9}
ROWS: tuple[dict[str, Any], ...] = ({},)  # one group of all rows: what intervals of differences are of
Groups = dict[str, dict[Any, Estimate]]


def plots(section: Section) -> Iterator[Picture]:
    """Yield the plots that the section has the rows for."""
    drawer, finished = pyplot("eval"), section.finished
    for name, caption, draw in (
        ("heat", "Score by length and depth.", heat(section)),
        ("costs", "Score against memory and time; numbers are those of the leaderboard.", costs(finished)),
        ("budget", "Score against the capacity; bars are 95% intervals.", budget(finished)),
        ("ablation", "One setting changed, all others the same; bars are 95% intervals.", ablation(finished)),
    ):
        if draw:
            yield picture(drawer, name, caption, draw)


def heat(section: Section) -> Draw | None:
    """One map a series: lengths across, depths down."""
    lengths, depths = values(section, "length"), values(section, "depth")
    numbers = all(isinstance(x, int | float) for x in [*lengths, *depths])

    def draw(plots: Any) -> Any:
        count = len(section.series)
        wide, high = min(ACROSS, count), -(-count // ACROSS)
        size = (0.6 + wide * max(2.4, 0.55 * len(lengths)), 0.5 + high * (1.0 + 0.42 * len(depths)))
        figure, axes = plots.subplots(high, wide, figsize=size, squeeze=False, layout="constrained")
        for place, (one, axis) in enumerate(zip(section.series, axes.flat, strict=False)):
            _map(axis, one, lengths, depths, first=place % wide == 0, last=place + wide >= count)
        for axis in list(axes.flat)[count:]:
            axis.set_axis_off()
        return figure

    return draw if numbers and len(lengths) * len(depths) > 1 and len(depths) <= MOST_DEPTHS else None


def _map(axis: Any, one: Series, lengths: list[Any], depths: list[Any], first: bool, last: bool) -> None:
    found = [[one.mean([{"length": n, "depth": d}]) for n in lengths] for d in depths]
    grid = [[100 * cell.mean if cell else float("nan") for cell in row] for row in found]
    axis.imshow(grid, vmin=0, vmax=100, cmap="viridis", aspect="auto")
    for y, row in enumerate(grid):
        for x, value in enumerate(row):
            if value == value:
                ink = "#111111" if value > 60 else "#ffffff"
                axis.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=8, color=ink)
    axis.set_xticks(range(len(lengths)), map(shown, lengths) if last else [])
    axis.set_yticks(range(len(depths)), map(shown, depths) if first else [])
    axis.set(title=_folded(one.name, 28), xlabel="tokens" if last else "", ylabel="depth" if first else "")
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)


def costs(section: Section) -> Draw | None:
    """Every cell of the leaderboard by its score, against its entries and against its seconds."""
    known = [one for one in standings(section) if one.entries and one.seconds]
    looks = {KNOWN: (COLOURS[0], "o"), UNKNOWN: (COLOURS[1], "s"), UNUSED: (GREY, "D")}

    def draw(plots: Any) -> Any:
        figure, axes = plots.subplots(1, 2, figsize=(7.4, 3.6), layout="constrained", sharey=True)
        for axis, value, label in (
            (axes[0], attrgetter("entries"), "KV entries at the peak"),
            (axes[1], attrgetter("seconds"), "seconds a row"),
        ):
            for question, (colour, marker) in looks.items():
                some = [one for one in known if one.series.question == question]
                xs, ys = [value(one) for one in some], [100 * one.rows.mean for one in some]
                if some:
                    axis.scatter(xs, ys, s=22, color=colour, marker=marker, label=f"question {question}")
                for one, x, y in zip(some, xs, ys, strict=True):
                    axis.annotate(str(one.number), (x, y), (4, 3), textcoords="offset points", fontsize=6.5)
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(lambda x, _: short(int(x)) if x >= 1024 else f"{x:g}")
            axis.set_xlabel(label)
            axis.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.7)
        axes[0].set_ylabel("mean of rows")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
        return figure

    return draw if len(known) > 1 else None


def budget(section: Section) -> Draw | None:
    """One line a series that was run with several capacities; level lines for those without one."""
    lines: dict[str, dict[int, Estimate]] = defaultdict(dict)
    flat: dict[str, Estimate] = {}
    for one in section.series:
        found, capacity = one.mean(ROWS), one.cell.get("capacity")
        if found and capacity:
            lines[_without(one, "capacity")][capacity] = found
        elif found:
            flat[one.name] = found
    lines = {name: line for name, line in lines.items() if len(line) > 1}
    capacities = sorted({capacity for line in lines.values() for capacity in line})

    def draw(plots: Any) -> Any:
        figure, axis = plots.subplots(figsize=(7.4, 4.0), layout="constrained")
        for index, (name, line) in enumerate(lines.items()):
            xs, found = zip(*sorted(line.items()), strict=True)
            spread = 1 + 0.012 * (index - len(lines) / 2)  # so that bars do not hide each other
            look = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)], **LINE}
            means, places = [100 * one.mean for one in found], [x * spread for x in xs]
            axis.errorbar(places, means, yerr=_errors(found), label=_folded(name, 40), **look)
        for index, (name, level) in enumerate(flat.items()):
            axis.axhline(100 * level.mean, color=GREY, ls=("--", ":", "-.")[index % 3], lw=1.2, label=name)
        axis.set_xscale("log", base=2)
        axis.set_xticks(capacities, map(short, capacities), minor=False)
        axis.minorticks_off()
        axis.set(xlabel="capacity, entries", ylabel="score", ylim=(0, None))
        axis.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.7)
        figure.legend(loc="outside right upper")
        return figure

    return draw if lines else None


def ablation(section: Section) -> Draw | None:
    """One panel a setting, with the series that differ in that setting alone."""
    found = {setting: groups for setting in ABLATIONS if (groups := compared(section, setting))}

    def draw(plots: Any) -> Any:
        ratios = [0.9 + sum(0.3 * len(bars) + 0.25 for bars in groups.values()) for groups in found.values()]
        size = {"figsize": (7.4, sum(ratios)), "height_ratios": ratios}
        figure, axes = plots.subplots(len(found), 1, squeeze=False, layout="constrained", **size)
        for axis, (setting, groups) in zip(axes.flat, found.items(), strict=True):
            _bars(axis, setting, groups)
        axes.flat[-1].set_xlabel("score")
        return figure

    return draw if found else None


def _bars(axis: Any, setting: str, groups: Groups) -> None:
    """Bars that lie, so that names of any length can be read; one colour a value."""
    known = list(dict.fromkeys(value for bars in groups.values() for value in bars))
    line = {"elinewidth": 0.9, "ecolor": GREY}
    y, places, names = 0.0, [], []
    for group, bars in groups.items():
        if len(groups) > 1:
            axis.text(0.5, y + 0.1, group, fontsize=8, va="center")
            y += 0.8
        for value, found in bars.items():
            colour = COLOURS[known.index(value) % len(COLOURS)]
            axis.barh(y, 100 * found.mean, 0.8, xerr=_errors([found]), color=colour, error_kw=line)
            axis.text(100 * found.high + 1, y, f"{100 * found.mean:.1f}", va="center", fontsize=8)
            places.append(y)
            names.append(_folded(shown(value), 30, most=2))
            y += 1
        y += 0.4
    axis.set_yticks(places, names)
    axis.set(xlim=(0, 107), xticks=range(0, 101, 20), ylim=(y - 0.8, -0.6 if len(groups) == 1 else -0.4))
    axis.tick_params(axis="y", length=0)
    axis.set_title(setting if len(groups) > 1 else f"{setting}: {next(iter(groups))}", loc="left")


def compared(section: Section, setting: str) -> Groups:
    """Series that differ in one setting only, where there are at least two of a kind."""
    groups: Groups = defaultdict(dict)
    for one in section.series:
        found, value, units = one.mean(ROWS), one.cell.get(setting), one.cell.get("units")
        if found and value is not None:
            name = _without(one, setting).replace(f" units={units}", "") + WHOLE * (units == "sentences")
            groups[name][value] = found
    if setting == "novelty":  # all novelty asks no catalyst: that is one end of every sweep of single slots
        for name in [name for name in groups if len(groups[name]) == 1 and 1.0 in groups[name]]:
            for other in (other for other in groups if other.startswith(f"{name} ") and WHOLE not in other):
                groups[other] |= groups[name]
    return {
        name: dict(sorted(bars.items(), key=lambda bar: (isinstance(bar[0], str), bar[0])))
        for name, bars in groups.items()
        if len(bars) > 1
    }


def _without(one: Series, setting: str) -> str:
    """The name of a series with one setting left out: the same for all that differ in that setting alone."""
    cell, words = one.cell, one.name.split()
    if setting == "catalyst":
        words = one.name.replace(str(cell["catalyst"]), "").replace('""', "").split()
    if setting == "capacity":
        words.remove(str(cell["capacity"]))
        if cell["keep"] and f"keep={cell['keep']}" in words:
            words[words.index(f"keep={cell['keep']}")] = f"keep={cell['keep'] / cell['capacity']:g}"
    return " ".join(word for word in words if not word.startswith(f"{setting}="))


def _errors(found: Sequence[Estimate]) -> list[list[float]]:
    return [[100 * (e.mean - e.low) for e in found], [100 * (e.high - e.mean) for e in found]]


def _folded(text: str, width: int, most: int | None = None) -> str:
    lines = textwrap.wrap(text, width, break_on_hyphens=False, max_lines=most, placeholder=" …")
    return "\n".join(lines) or text
