"""Figures 2 and 3 of the paper for a text of one's own, and a map of what is held."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from infinipot.common.plots import COLOURS, GREY, Picture, picture, pyplot
from infinipot.inspect.findings import Findings

CAPTIONS = {
    "hit-rate": "Share of the tokens the answer attends to, with the whole text at hand, that the pot holds; "
    "mean over a layer's heads (Figure 2, top).",
    "frequency": "Where in the text the held tokens come from: share held, mean over heads "
    "(Figure 2, bottom).",
    "overlap": "Share of held tokens that two pots have in common, cycle by cycle (Figure 3, top).",
    "novelty": "Summed novelty of a head's held tokens against the most there was: the most novel of all "
    "tokens read, dotted (Figure 3, bottom).",
    "retention": "Share held in the end, by layer and by place in the text.",
}
DOTS = {"marker": "o", "markersize": 3}
WIDE = {"squeeze": False, "sharex": True, "layout": "constrained"}


def pictures(found: Findings) -> Iterator[Picture]:
    """Yield the pictures that there are numbers for."""
    plots, drawn = pyplot("inspect"), (_hits, _frequency, _overlap, _novelty, _retention)
    for (name, caption), draw in zip(CAPTIONS.items(), drawn, strict=True):
        if {"hit-rate": found.hits, "overlap": found.pairs}.get(name, True):
            yield picture(plots, name, caption, partial(draw, found=found))


def _hits(plots: Any, found: Findings) -> Any:
    figure, axis = plots.subplots(figsize=(7.4, 3.6), layout="constrained")
    for name, hits in found.hits.items():
        told, colour = f"{name} ({100 * hits.mean():.1f})", _colour(found, name)
        axis.plot(found.layers, 100 * hits.mean(1), label=told, color=colour, **DOTS)
    axis.set(xlabel="layer", ylabel="hit rate, %", ylim=(0, None))
    axis.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside right upper")
    return figure


def _frequency(plots: Any, found: Findings) -> Any:
    chosen = spread_layers(len(found.layers))
    rows = list(found.frequency.items())
    size = (7.4, 0.6 + 1.15 * len(rows))
    figure, axes = plots.subplots(len(rows), len(chosen), figsize=size, sharey="col", **WIDE)
    for line, (name, values) in zip(axes, rows, strict=True):
        for axis, layer in zip(line, chosen, strict=True):
            axis.stairs(100 * values[layer], _edges(found, values), fill=True, color=_colour(found, name))
            roots(axis)
        line[0].set_ylabel(name.replace(" ", "\n", 1))
    for first, last, layer in zip(axes[0], axes[-1], chosen, strict=True):
        first.set_title(f"layer {found.layers[layer]}")
        last.set_xlabel("token of the text")
    figure.supylabel("share held, %", fontsize=9)
    return figure


def spread_layers(count: int) -> list[int]:
    """Which of some layers are shown: the paper's are the 1st and the 30th of 32."""
    return sorted({0, round(0.94 * (count - 1))})


def roots(axis: Any) -> None:
    """A scale for shares held: of a long text most is dropped."""
    axis.set_yscale("function", functions=(np.sqrt, np.square))
    axis.set(ylim=(0, 100), yticks=[0, 5, 20, 50, 100])


def _overlap(plots: Any, found: Findings) -> Any:
    figure, axis = plots.subplots(figsize=(7.4, 3.2), layout="constrained")
    for number, pair in enumerate(found.pairs):
        label, colour = " and ".join(pair.names), COLOURS[number % len(COLOURS)]
        axis.plot(pair.tokens, 100 * pair.overlap.mean((1, 2)), label=label, color=colour, **DOTS)
    axis.set(xlabel="tokens read", ylabel="in common, %", ylim=(0, None))
    figure.legend(loc="outside upper left", ncols=2)
    return figure


def _novelty(plots: Any, found: Findings) -> Any:
    figure, axis = plots.subplots(figsize=(7.4, 3.4), layout="constrained")
    for name, novelty in found.novelty.items():
        axis.plot(novelty.tokens, novelty.held.mean((1, 2)), label=name, color=_colour(found, name), **DOTS)
    first = found.novelty[found.runs[0].name]
    axis.plot(first.tokens, first.best, color=GREY, linestyle=":", label="the most there was")
    axis.set(xlabel="tokens read", ylabel="summed novelty, nats", ylim=(0, None))
    figure.legend(loc="outside right upper")
    return figure


def _retention(plots: Any, found: Findings) -> Any:
    rows = list(found.frequency.items())
    figure, axes = plots.subplots(len(rows), 1, figsize=(7.4, 0.6 + 1.6 * len(rows)), **WIDE)
    scale = plots.matplotlib.colors.PowerNorm(0.5, 0, 100)  # of a long text most is dropped
    for axis, (name, values) in zip(axes.flat, rows, strict=True):
        edges = _edges(found, values)
        place = (edges[0], edges[-1], len(found.layers) - 0.5, -0.5)
        shown = axis.imshow(100 * values, cmap="viridis", norm=scale, aspect="auto", extent=place)
        axis.set_title(name, loc="left")
        axis.set(ylabel="layer")
    axes.flat[-1].set_xlabel("token of the text")
    figure.colorbar(shown, ax=axes, label="share held, %", shrink=0.8)
    return figure


def _edges(found: Findings, values: Any) -> Any:
    return np.linspace(0, len(found.runs[0].record.ids), values.shape[-1] + 1)


def _colour(found: Findings, name: str) -> str:
    names = [run.name for run in found.runs]
    return COLOURS[names.index(name) % len(COLOURS)] if name in names else GREY
