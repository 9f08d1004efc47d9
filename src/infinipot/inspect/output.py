"""From runs to a folder: `index.html`, `report.json`, pictures, and the recordings themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infinipot.common.atomic_files import reason
from infinipot.errors import InputError
from infinipot.inspect.findings import findings
from infinipot.inspect.global_scoring import Whole
from infinipot.inspect.page import page
from infinipot.inspect.plots import pictures
from infinipot.inspect.run import Run


def write_report(
    runs: Sequence[Run], whole: Whole | None, out: Path, facts: Mapping[str, str]
) -> tuple[list[Path], dict[str, Any]]:
    """Write everything about the runs; return the files, the page first, and what report.json says."""
    found = findings(runs, whole)
    drawn = list(pictures(found))
    told = {"about": dict(facts), **found.json()}
    try:
        out.mkdir(parents=True, exist_ok=True)
        written = [out / "index.html"]
        written[0].write_text(page(found, drawn, facts), encoding="utf-8")
        for run, stated in zip(runs, told["recipes"], strict=True):
            path = out / f"{slug(run.name)}.npz"
            stated["recording"], stated["recording_file_bytes"] = path.name, run.record.save(path)
            written.append(path)
        for picture in drawn:
            path = out / f"{picture.name}.png"
            path.write_bytes(picture.light)
            written.append(path)
        written.append(out / "report.json")
        written[-1].write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write to {out}: {reason(error)}") from error
    return written, told


def slug(name: str) -> str:
    """A recipe's name as a file's."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
