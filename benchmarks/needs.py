"""The most memory each model of the catalogue takes while a text longer than the pot is read and asked about.

`python benchmarks/needs.py --out docs/results/needs.json` runs `infinipot ask` on this machine's processor, a
process for each model; rows of other models stay. `infinipot models list` shows the numbers, which
`models/catalog.py` repeats.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from infinipot.models.catalog import ALIASES
from logbook import logbook

ASKED = "What is the pass key of the tower?"
PLACE = ("--device", "cpu", "--json")
DAYS = 100  # some 5,200 tokens: more than a pot of 4,096 holds


def measured(alias: str, model: str) -> dict[str, object]:
    """Return what one process says of itself; the model is pulled by another, whose memory does not count."""
    if model == alias:
        subprocess.run([sys.executable, "-m", "infinipot", "models", "pull", alias], check=True)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "logbook.txt"
        text.write_text(logbook(DAYS).text, "utf-8")
        words = [
            "--file",
            str(text),
            "--model",
            model,
            "--device",
            "cpu",
            "--max-new-tokens",
            "8",
            "--json",
            ASKED,
        ]
        command = [sys.executable, "-m", "infinipot", "ask", *words]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    same = ("tokens_read", "capacity", "peak_memory_bytes", "seconds")
    return {"model": alias, **{name: told[name] for name in same}}


def main() -> None:
    """Measure the models that are named, or all of them, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=ALIASES, help="ALIAS, or ALIAS=FILE for one elsewhere")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    named = (one.partition("=") for one in given.models)
    told = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {"rows": []}
    for alias, _, file in named:
        told["rows"] = [row for row in told["rows"] if row["model"] != alias]
        told["rows"].append(measured(alias, file or alias))
        given.out.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
