"""Run a command under a hard memory limit of the kernel, set from outside, and say what it took.

    python benchmarks/limited.py --limit 2000000000 --out limit.json -- infinipot eval passkey ...

Needs Linux, root and a memory cgroup, version 1 or 2. The limit covers everything the command and its
children hold, page cache included; no swap is used. A command that needs more is killed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class Pen:
    """A memory cgroup of our own."""

    def __init__(self, limit: int) -> None:
        old = V1.is_dir()
        self.folder = (V1 if old else V2) / f"infinipot-{os.getpid()}"
        self.folder.mkdir()
        self.peak_file = "memory.max_usage_in_bytes" if old else "memory.peak"
        self.killed_file = "memory.oom_control" if old else "memory.events"
        (self.folder / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(limit))
        no_swap = self.folder / ("memory.swappiness" if old else "memory.swap.max")
        if no_swap.exists():
            no_swap.write_text("0")

    def enter(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def read(self) -> dict[str, int]:
        said = dict(line.split() for line in (self.folder / self.killed_file).read_text().splitlines())
        return {
            "peak_bytes": int((self.folder / self.peak_file).read_text()),
            "killed": int(said["oom_kill"]),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--limit", type=int, required=True, help="bytes")
    parser.add_argument("--out", type=Path, required=True, help="JSON file for what was measured")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    pen = Pen(args.limit)
    start = time.perf_counter()
    try:
        code = subprocess.run(command, preexec_fn=pen.enter, check=False).returncode
        found = {"limit_bytes": args.limit, **pen.read()}
    finally:
        pen.folder.rmdir()
    found |= {"exit": code, "seconds": round(time.perf_counter() - start, 1)}
    args.out.write_text(json.dumps({"command": command, "cores": os.cpu_count(), **found}, indent=1) + "\n")
    print(json.dumps(found))
    sys.exit(code)


if __name__ == "__main__":
    main()
