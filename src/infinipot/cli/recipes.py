"""`infinipot recipes`: every method, what it bounds, what it needs, what it costs, where it comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from infinipot.recipes import Method

Name = Annotated[str | None, typer.Argument(help="Show one recipe in full.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the page of the docs.")]


def recipes(name: Name = None, as_json: AsJson = False, as_markdown: AsMarkdown = False) -> None:
    """List the recipes: InfiniPot, its ablations, and the other systems of the paper's tables."""
    from infinipot.recipes import find, methods

    chosen = [find(name)] if name else list(methods().values())
    if as_json:
        found = [method.describe() for method in chosen]
        print(json.dumps(found[0] if name else found, ensure_ascii=False))
    elif as_markdown:
        print(markdown(chosen))
    elif name:
        _show_one(chosen[0])
    else:
        _show_all(chosen)


def _show_all(chosen: list[Method]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("RECIPE", "BOUNDS", "KEEPS", "CHOOSES BY"):
        table.add_column(heading)
    for method in chosen:
        bounds = method.bounds if method.bounded else f"[yellow]{method.bounds}[/yellow]"
        table.add_row(f"[bold]{method.name}[/bold]", bounds, method.summary, method.needs)
    console = Console()
    console.print(table)
    console.print("\ninfinipot recipes NAME shows settings, cost, paper and known deviations.", style="dim")


def _show_one(method: Method) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, value in method.describe().items():
        table.add_row(heading, _plain(value))
    Console().print(table)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{knob}={default}" for knob, default in value.items()) or "none"
    return "" if value is None else str(value)


def markdown(chosen: list[Method]) -> str:
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
    for method in chosen:
        lines.append(f"| `{method.name}` | {method.bounds} | {method.summary} | {method.needs} |")
    for method in chosen:
        stated = method.describe()
        lines += ["", f"## `{method.name}`", "", f"{method.summary}.", ""]
        stated["settings"] = stated["knobs"]
        shown = ("drops at a time", "cost", "settings", "paper", "deviations")
        lines += [f"- **{heading}**: {_plain(stated[heading])}" for heading in shown if stated[heading]]
    return "\n".join(lines).replace("|C|", "\\|C\\|").replace("|M|", "\\|M\\|")
