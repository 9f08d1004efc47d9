"""Peak resident memory against text length, one process per length: it must not grow.

python benchmarks/memory.py --lengths 10000,100000 --capacity 2048
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from infinipot.eval.tasks.passkey import NOISE, QUESTION

TOKENS_PER_NOISE = 23


def measure(model: str, capacity: int, length: int) -> dict:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write((NOISE + " ") * (length // TOKENS_PER_NOISE + 1))
        file.flush()
        words = ["ask", "--file", file.name, "--model", model, "--capacity", str(capacity)]
        words += ["--novelty", "0.5", "--max-new-tokens", "4", "--json", QUESTION]
        done = subprocess.run(
            [sys.executable, "-m", "infinipot.cli.main", *words], capture_output=True, check=True
        )
    told = json.loads(done.stdout)
    return {name: told[name] for name in ("tokens_read", "cycles", "peak_memory_bytes", "seconds")}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--lengths", default="10000,100000")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for length in map(int, args.lengths.split(",")):
        rows.append(measure(args.model, args.capacity, length))
        print(json.dumps(rows[-1]), flush=True)
    growth = rows[-1]["peak_memory_bytes"] / rows[0]["peak_memory_bytes"]
    print(f"peak memory, last over first: {growth:.3f}")
    if args.out:
        args.out.write_text(json.dumps({"rows": rows, "growth": round(growth, 4)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
