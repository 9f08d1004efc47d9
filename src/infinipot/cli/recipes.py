"""`infinipot recipes`: every preset, what it bounds, what it needs, what it costs, where it comes from."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli.expand import JSON, Given, with_options, worded
from infinipot.cli.screen import draw, plain_table, print_json
from infinipot.recipes.option import Option

if TYPE_CHECKING:
    from infinipot.recipes.presets import Preset

Name = Annotated[str | None, typer.Argument(help="Show one recipe in full.")]
HEAD = """# Recipes

Made by `infinipot recipes --markdown`. Use one with `--recipe NAME`, change its settings with
`--set NAME=VALUE`; in the library, `load(recipe=NAME, setting=value)`. The last column says whose
attention, or whose surprise, the choice rests on: what is not named is not computed.

| recipe | bounds | what it does | chooses by |
|---|---|---|---|"""
HEADINGS = {True: "[bold]MEMORY IS BOUNDED[/]", False: "[bold yellow]MEMORY GROWS WITH THE TEXT[/]"}
MARKDOWN = Option("markdown", bool, False, "Print the page of the docs.")


@with_options(JSON, MARKDOWN)
def recipes(name: Name = None, *, given: Given) -> None:
    """List the recipes: InfiniPot, its ablations, and the other systems of the paper's tables."""
    from infinipot.recipes.presets import find, presets

    chosen = [find(name)] if name else list(presets().values())
    found = [preset.describe() for preset in chosen]
    if given["json"]:
        print_json(found[0] if name else found)
    elif given["markdown"]:
        print(markdown(chosen))
    elif name:
        draw(_pairs({key: worded(_plain(told)) for key, told in found[0].items() if told is not None}))
    else:
        for bounded, heading in HEADINGS.items():
            draw(heading, _pairs({one.name: _lines(one) for one in chosen if one.bounded == bounded}))
        draw("[dim]See infinipot recipes NAME for one with its settings.[/dim]")


def _pairs(rows: Mapping[str, str]) -> Any:
    table = plain_table(("", ""))
    table.show_header = False
    table.columns[0].style, table.columns[0].no_wrap = "bold", True
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _lines(preset: "Preset") -> str:
    stated = preset.describe()
    drops = f", {stated['drops at a time']} at a time" if stated["drops at a time"] else ""
    facts = ["" if preset.bounded else f"Bounds {stated['bounds']}", f"Needs {stated['needs']}{drops}"]
    facts += [f"Cost: {stated['cost']}", stated["paper"], f"Differs: {stated['deviations']}"]
    return f"{preset.summary}.\n[dim]{worded('. '.join(filter(None, facts)))}.[/dim]\n"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{knob}={default}" for knob, default in value.items()) or "none"
    return str(value)


def markdown(chosen: "list[Preset]") -> str:
    """Return docs/recipes.md."""
    lines = [HEAD, *(f"| `{one.name}` | {one.bounds} | {one.summary} | {one.needs} |" for one in chosen)]
    for preset in chosen:
        stated = {"settings": preset.knobs, **preset.describe()}
        lines += ["", f"## `{preset.name}`", "", f"{preset.summary}.", ""]
        shown = ("drops at a time", "cost", "settings", "with no question known", "paper", "deviations")
        lines += [f"- **{heading}**: {_plain(stated[heading])}" for heading in shown if stated[heading]]
    return "\n".join(lines).replace("|C|", "\\|C\\|").replace("|M|", "\\|M\\|")
