"""`infinipot recipes`: every preset, what it bounds, what it needs, what it costs, where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli.expand import Given, with_options, worded
from infinipot.cli.screen import JSON, print_json
from infinipot.recipes.option import Option

if TYPE_CHECKING:
    from rich.table import Table

    from infinipot.recipes.presets import Preset

Name = Annotated[str | None, typer.Argument(help="Show one recipe in full.")]
HEAD = """# Recipes

Made by `infinipot recipes --markdown`. Use one with `--recipe NAME`, change its settings with
`--set NAME=VALUE`; in the library, `load(recipe=NAME, setting=value)`. The last column says whose
attention, or whose surprise, the choice rests on: what is not named is not computed.

| recipe | bounds | what it does | chooses by |
|---|---|---|---|"""
MARKDOWN = Option("markdown", bool, False, "Print the page of the docs.")


@with_options(JSON, MARKDOWN)
def recipes(name: Name = None, *, given: Given) -> None:
    """List the recipes: InfiniPot, its ablations, and the other systems of the paper's tables."""
    from infinipot.recipes.presets import find, presets

    chosen = [find(name)] if name else list(presets().values())
    if given["json"]:
        found = [preset.describe() for preset in chosen]
        print_json(found[0] if name else found)
    elif given["markdown"]:
        print(markdown(chosen))
    elif name:
        from rich.console import Console

        Console().print(_pairs({key: worded(_plain(told)) for key, told in chosen[0].describe().items()}))
    else:
        _show_all(chosen)


def _show_all(chosen: list[Preset]) -> None:
    from rich.console import Console

    console = Console()
    for heading, bounded in (("MEMORY IS BOUNDED", True), ("MEMORY GROWS WITH THE TEXT", False)):
        console.print(heading, style="bold" if bounded else "bold yellow")
        rows = {preset.name: _lines(preset) for preset in chosen if preset.bounded == bounded}
        console.print(_pairs(rows))
    console.print("See infinipot recipes NAME for one with its settings.", style="dim")


def _pairs(rows: Mapping[str, str]) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _lines(preset: Preset) -> str:
    stated = preset.describe()
    drops = f", {stated['drops at a time']} at a time" if stated["drops at a time"] else ""
    facts = [] if preset.bounded else [f"Bounds {stated['bounds']}"]
    facts += [f"Needs {stated['needs']}{drops}", f"Cost: {stated['cost']}"]
    facts += [stated["paper"], f"Differs: {stated['deviations']}"]
    return f"{preset.summary}.\n[dim]{worded('. '.join(filter(None, facts)))}.[/dim]\n"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{knob}={default}" for knob, default in value.items()) or "none"
    return "" if value is None else str(value)


def markdown(chosen: list[Preset]) -> str:
    """Return docs/recipes.md."""
    lines = [HEAD]
    lines += [f"| `{one.name}` | {one.bounds} | {one.summary} | {one.needs} |" for one in chosen]
    for preset in chosen:
        stated = preset.describe()
        lines += ["", f"## `{preset.name}`", "", f"{preset.summary}.", ""]
        stated["settings"] = stated["knobs"]
        shown = ("drops at a time", "cost", "settings", "paper", "deviations")
        lines += [f"- **{heading}**: {_plain(stated[heading])}" for heading in shown if stated[heading]]
    return "\n".join(lines).replace("|C|", "\\|C\\|").replace("|M|", "\\|M\\|")
