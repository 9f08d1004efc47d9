"""Figures 2 and 3 of the paper over several rows, one picture each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from infinipot.common.plots import COLOURS, GREY, INK, MARKERS, png, pyplot
from infinipot.inspect.plots import roots, spread_layers
from paper.averages import CAP, WITH_NOVELTY, Averages, Curve, Mean


def figure2(found: Averages, title: str) -> bytes:
    """Hit rate by layer, and where in the texts the held tokens come from."""
    return png(pyplot("inspect"), lambda plots: _figure2(plots, found, title), "light", "white")


def figure3(found: Averages, title: str) -> bytes:
    """What CaP and CaP with NuC have in common, and their summed novelty, cycle by cycle."""
    return png(pyplot("inspect"), lambda plots: _figure3(plots, found, title), "light", "white")


def _figure2(plots: Any, found: Averages, title: str) -> Any:
    rows = list(found.frequency)
    figure = plots.figure(figsize=(8.6, 4.4 + 0.95 * len(rows)), layout="constrained")
    figure.suptitle(title, fontsize=10)
    above, below = figure.subfigures(2, 1, height_ratios=(3.4, 0.6 + 0.95 * len(rows)))
    _hits(above, found)
    _frequency(below, found)
    return figure


def _hits(figure: Any, found: Averages) -> None:
    axis = figure.subplots()
    for name, means in found.hits_by_layer.items():
        whole = found.hits[name]
        told = f"{name}: {100 * whole.mean:.1f} ({100 * whole.low:.1f} to {100 * whole.high:.1f})"
        _line(axis, found.layers, means, 100, {**_look(found, name), "label": told})
    axis.set(
        xlabel="layer", ylabel="hit rate, %", title="Share of what the answer attends to that the pot holds"
    )
    axis.set_ylim(bottom=0)
    axis.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside right upper", title="mean of all layers (95% interval)")


def _frequency(figure: Any, found: Averages) -> None:
    rows, chosen = list(found.frequency.items()), spread_layers(len(found.layers))
    axes = figure.subplots(len(rows), len(chosen), squeeze=False, sharex=True, sharey=True)
    for line, (name, values) in zip(axes, rows, strict=True):
        colour = _look(found, name)["color"] if name in found.hits else GREY
        for axis, layer in zip(line, chosen, strict=True):
            edges = np.linspace(0, 100, values.shape[-1] + 1)
            axis.stairs(100 * values[layer], edges, fill=True, color=colour)
            roots(axis)
            axis.set_xlim(0, 100)
        line[0].set_ylabel(name.replace(" ", "\n", 1), rotation=0, ha="right", va="center")
    for first, last, layer in zip(axes[0], axes[-1], chosen, strict=True):
        first.set_title(f"Where held tokens come from, layer {found.layers[layer]}")
        last.set_xlabel("place in the text, %")
    figure.supylabel("share held, %", fontsize=9)


def _figure3(plots: Any, found: Averages, title: str) -> Any:
    figure = plots.figure(figsize=(8.6, 6.6), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = figure.subplot_mosaic("AA\nBC", height_ratios=(1, 1.15))
    _overlap(axes["A"], found)
    names = [name for name in (CAP, WITH_NOVELTY) if name in found.novelty]
    for name in names:
        _banded(axes["B"], found.novelty[name], 1, {**_look(found, name), "label": name})
        _banded(axes["C"], found.share[name], 100, _look(found, name))
    best = found.best[names[0]]
    _line(
        axes["B"],
        best.cycles,
        best.means,
        1,
        {"color": GREY, "ls": ":", "lw": 2, "label": "the most there was"},
    )
    axes["B"].set(title="Summed novelty of what a head holds", ylabel="nats")
    axes["C"].set(title="The same, of the most there was", ylabel="%")
    axes["C"].set_ylim(0, 100)
    axes["B"].set_ylim(bottom=0)
    for axis, curve in ((axes["A"], found.overlap), (axes["B"], best), (axes["C"], best)):
        _cycles(axis, curve, found.rows)
    handles, labels = axes["B"].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _overlap(axis: Any, found: Averages) -> None:
    for cycles, values in found.overlaps:
        axis.plot(cycles, 100 * np.array(values), color=GREY, linewidth=0.7, alpha=0.6)
    _banded(axis, found.overlap, 100, {"color": INK["light"], "marker": "o", "label": "mean"})
    axis.plot([], [], color=GREY, linewidth=0.7, label="each row")
    axis.set(title=f"Held tokens that {CAP} and {WITH_NOVELTY} have in common", ylabel="%")
    axis.set_ylim(0, 100)
    axis.legend(loc="upper right")


def _line(
    axis: Any, across: Sequence[int], means: Sequence[Mean], scale: float, look: dict[str, Any]
) -> None:
    axis.plot(across, [scale * m.mean for m in means], markersize=3.5, **look)


def _banded(axis: Any, curve: Curve, scale: float, look: dict[str, Any]) -> None:
    """A mean with its interval."""
    low, high = ([scale * getattr(m, name) for m in curve.means] for name in ("low", "high"))
    axis.fill_between(curve.cycles, low, high, color=look["color"], alpha=0.15, linewidth=0)
    _line(axis, curve.cycles, curve.means, scale, look)


def _look(found: Averages, name: str) -> dict[str, Any]:
    """The same for a recipe in both figures; not by colour alone."""
    number = list(found.hits).index(name)
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def _cycles(axis: Any, curve: Curve, rows: int) -> None:
    """Under a cycle that not every row has: how many have it."""
    step = max(1, -(-len(curve.cycles) // 12))
    pairs = list(zip(curve.cycles, curve.means, strict=True))[::step]
    axis.set_xticks([cycle for cycle, _ in pairs])
    axis.set_xticklabels([f"{c}" if m.rows == rows else f"{c}\n({m.rows})" for c, m in pairs])
    fewer = any(m.rows < rows for _, m in pairs)
    axis.set_xlabel("cycle (rows that have it, where not all do)" if fewer else "cycle")
