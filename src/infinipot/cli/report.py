"""`infinipot report`: tables, pictures and one page out of the folders that `infinipot eval` wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from infinipot.cli.expand import Given, with_options
from infinipot.cli.screen import note, print_json
from infinipot.recipes.option import Option
from infinipot.recipes.options import JSON

Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")]
OPTIONS = (
    Option("out", Path, None, "Where to write.", shown="report, in the folder where there is one only"),
    Option("mix", bool, False, "Allow runs that differ in more than their cells."),
    replace(JSON, help="Print the names of the files as one JSON document.", group=""),
)


@with_options(*OPTIONS)
def report(folders: Folders, *, given: Given) -> None:
    """Compare runs: Markdown and CSV tables, pictures, and one HTML page with everything in it."""
    from infinipot.eval.report import report as write

    place = given["out"] or (folders[0] / "report" if len(folders) == 1 else Path("report"))
    written = write(folders, place, given["mix"])
    if given["json"]:
        print_json({"out": str(place), "files": [str(path) for path in written]})
        return
    markdown = next(path for path in written if path.suffix == ".md")
    print(markdown.read_text("utf-8"))
    note(f"the page: {written[0]}, and {len(written) - 1} files beside it")
