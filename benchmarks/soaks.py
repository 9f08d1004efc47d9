"""Soaks side by side, each with one thing otherwise, to see what a server's memory depends on.

python benchmarks/soaks.py --out soaks.json --requests 1200 -- --model smollm2 --capacity 2048 --slots 16
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SOAK = Path(__file__).parent / "soak.py"
LATER = "infinipot.server.scheduler.warm_up:MOST_LATE=0"
VARIANTS: dict[str, tuple[dict[str, str], list[str]]] = {  # variables, and options of the server
    "as it is": ({}, []),
    "one arena": ({"MALLOC_ARENA_MAX": "1"}, []),
    "modules at once": ({"CUDA_MODULE_LOADING": "EAGER"}, []),
    "no late graphs": ({"SOAK_SET": LATER}, []),
    "no archives": ({}, ["--recall", "0"]),
}
KINDS = ("heap", "arenas", "anonymous", "files", "devices")


def begun(name: str, folder: Path, mine: list[str], serving: list[str]) -> subprocess.Popen[bytes]:
    """Start one soak; its result and what its server told lie in `folder`."""
    variables, options = VARIANTS[name]
    place = folder / name.replace(" ", "-")
    command = [sys.executable, str(SOAK), *mine, "--out", f"{place}.json", "--look", f"{place}.jsonl"]
    with Path(f"{place}.log").open("wb") as log:
        told = [*command, "--", *serving, *options]
        return subprocess.Popen(told, env={**os.environ, **variables}, stdout=log, stderr=log)


def ended(name: str, folder: Path) -> dict[str, Any]:
    """Return what a soak found, and what its server told of itself."""
    place = folder / name.replace(" ", "-")
    if not Path(f"{place}.json").exists():
        return {"failed": Path(f"{place}.log").read_text(errors="replace")[-1500:]}
    look = Path(f"{place}.jsonl")
    lines = [json.loads(line) for line in look.read_text().splitlines()] if look.exists() else []
    return {**json.loads(Path(f"{place}.json").read_text()), "inside": lines}


def line(name: str, found: dict[str, Any]) -> str:
    """Megabytes in the second tenth, and what the last has more, in all and by kind."""
    if "failed" in found:
        return f"{name:16} failed: {found['failed'][-300:]}"
    size = found["resident_bytes"]["by_tenth"]
    told = [
        f"{name:16} {size[1] / 1e6:8.0f} {(size[-1] - size[1]) / 1e6:+8.1f} {size[-1] / size[1] - 1:+7.1%}"
    ]
    for kind in KINDS:
        tenths = found["where"].get(kind, {}).get("by_tenth") or [0, 0]
        told.append(
            f"{kind} {tenths[min(1, len(tenths) - 1)] / 1e6:.0f}{(tenths[-1] - tenths[1]) / 1e6:+.1f}"
        )
    return "  ".join(told)


def main() -> None:
    words = [*sys.argv[1:], "--"]
    mine, serving = words[: words.index("--")], words[words.index("--") + 1 : -1]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="which, with commas between")
    parser.add_argument("--limit", type=float, default=400, help="seconds of all together")
    args, more = parser.parse_known_args(mine)
    with tempfile.TemporaryDirectory() as name:
        folder, names = Path(name), args.variants.split(",")
        running = [begun(one, folder, more, serving) for one in names]
        for one in running:
            try:
                one.wait(args.limit)
            except subprocess.TimeoutExpired:
                one.terminate()
        found = {one: ended(one, folder) for one in names}
    args.out.write_text(json.dumps(found) + "\n")
    for one in names:
        print(line(one, found[one]))


if __name__ == "__main__":
    main()
