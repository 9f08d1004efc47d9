"""`infinipot recipes`: every preset, what it bounds, what it needs, what it costs, where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli.expand import Given, with_options, worded
from infinipot.cli.screen import print_json
from infinipot.recipes.option import Option

if TYPE_CHECKING:
    from infinipot.recipes.preset import Preset

Name = Annotated[str | None, typer.Argument(help="Show one recipe in full.")]
OPTIONS = (
    Option("json", bool, False, "Print one JSON document."),
    Option("markdown", bool, False, "Print the page of the docs."),
)


@with_options(*OPTIONS)
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
        _show_one(chosen[0])
    else:
        _show_all(chosen)


def _show_all(chosen: list[Preset]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for heading, bounded in (("MEMORY IS BOUNDED", True), ("MEMORY GROWS WITH THE TEXT", False)):
        table = Table(box=None, show_header=False, pad_edge=False, title_justify="left", title=heading)
        table.title_style = "bold" if bounded else "bold yellow"
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for preset in chosen:
            if preset.bounded == bounded:
                table.add_row(preset.name, _lines(preset))
        console.print(table)
    console.print("See infinipot recipes NAME for one with its settings.", style="dim")


def _lines(preset: Preset) -> str:
    stated = preset.describe()
    drops = f", {stated['drops at a time']} at a time" if stated["drops at a time"] else ""
    facts = [
        "" if preset.bounded else f"Bounds {stated['bounds']}",
        f"Needs {stated['needs']}{drops}",
        f"Cost: {stated['cost']}",
        stated["paper"],
        f"Differs: {stated['deviations']}",
    ]
    return f"{preset.summary}.\n[dim]{worded('. '.join(filter(None, facts)))}.[/dim]\n"


def _show_one(preset: Preset) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, value in preset.describe().items():
        table.add_row(heading, worded(_plain(value)))
    Console().print(table)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{knob}={default}" for knob, default in value.items()) or "none"
    return "" if value is None else str(value)


def markdown(chosen: list[Preset]) -> str:
    """Return docs/recipes.md."""
    lines = [
        "# Recipes",
        "",
        "Made by `infinipot recipes --markdown`. Use one with `--recipe NAME`, change its settings with",
        "`--set NAME=VALUE`; in the library, `load(recipe=NAME, setting=value)`. The last column says whose",
        "attention, or whose surprise, the choice rests on: what is not named is not computed.",
        "",
        "| recipe | bounds | what it does | chooses by |",
        "|---|---|---|---|",
    ]
    for preset in chosen:
        lines.append(f"| `{preset.name}` | {preset.bounds} | {preset.summary} | {preset.needs} |")
    for preset in chosen:
        stated = preset.describe()
        lines += ["", f"## `{preset.name}`", "", f"{preset.summary}.", ""]
        stated["settings"] = stated["knobs"]
        shown = ("drops at a time", "cost", "settings", "paper", "deviations")
        lines += [f"- **{heading}**: {_plain(stated[heading])}" for heading in shown if stated[heading]]
    return "\n".join(lines).replace("|C|", "\\|C\\|").replace("|M|", "\\|M\\|")
