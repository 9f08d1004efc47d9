"""`infinipot report`: tables, pictures and one page out of the folders that `infinipot eval` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from infinipot.cli.screen import note

Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Where to write.", show_default="report, in the folder where there is one only"),
]
Mix = Annotated[bool, typer.Option("--mix", help="Allow runs that differ in more than their cells.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the names of the files as one JSON document.")]


def report(folders: Folders, out: Out = None, mix: Mix = False, as_json: AsJson = False) -> None:
    """Compare runs: Markdown and CSV tables, pictures, and one HTML page with everything in it."""
    from infinipot.eval.report import report as write

    place = out or (folders[0] / "report" if len(folders) == 1 else Path("report"))
    written = write(folders, place, mix)
    if as_json:
        print(json.dumps({"out": str(place), "files": [str(path) for path in written]}))
        return
    markdown = next(path for path in written if path.suffix == ".md")
    print(markdown.read_text("utf-8"))
    note(f"the page: {written[0]}, and {len(written) - 1} files beside it")
