"""Everything about few bits and speed on one CUDA card, checked and timed, in parts of a few minutes.

    python benchmarks/card.py --out DIR                         all parts, one after the other
    python benchmarks/card.py --parts tests,read,decode --out DIR
    python benchmarks/card.py --list

Each part is a process of its own with a limit in seconds: one that fails, hangs or runs out of memory stops
no other, and memory is counted from nothing. Every part writes DIR/PART.json; the table comes last. Weights
are random, of a real shape: speed does not depend on what they say.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
PARTS = {  # name: seconds it may take, what it is
    "tests": (420, "tests/gpu against plain torch"),
    "ceilings": (60, "products in bf16 and fp8, copies"),
    "read": (150, "128K tokens to the first token, bf16"),
    "read-fp8": (150, "the same in fp8"),
    "sentences": (200, "the same in bf16, by turns with whole sentences and slot by slot"),
    "read-int4": (150, "the same in int4: weights unpacked one by one"),
    "decode": (120, "a token at 4,096 entries, bf16, pots of 16 and 8 bits"),
    "decode-int4": (120, "the same, int4"),
    "decode-int8": (120, "the same, int8"),
    "decode-fp8": (120, "the same, fp8"),
    "documents": (150, "64 documents at once, pots of 16 bits"),
    "documents-8": (150, "64 documents at once, pots of 8 bits"),
    "memory": (200, "memory beyond the weights, 16K to 1M, bf16"),
    "small": (240, "int4 with 8 GB of the card: 1M tokens"),
    "suspects": (240, "what slows a captured cycle, one switch at a time"),
    "variants": (150, "other ways of doing a cycle, and its time by kernel, bf16"),
    "variants-fp8": (150, "the same in fp8, and single products"),
    "units": (130, "forms of the kernels of decoding: int4 products of one token, pots of 8 bits"),
    "steps-int4": (150, "a decoded token by kernel, int4, pot of 16 bits"),
    "steps-8": (150, "a step of 64 documents by kernel, pots of 8 bits"),
    "kernels": (240, "tiles of the products in few bits; attention on pots of 8 bits"),
}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="all", help="with commas between, or all")
    parser.add_argument("--out", type=Path, default=Path("card"), help="folder of the JSON files")
    parser.add_argument("--shape", default="llama-3-8b", help="whose random weights")
    parser.add_argument("--length", type=int, default=131072, help="tokens of a text")
    parser.add_argument("--longest", type=int, default=1048576, help="tokens of the longest text")
    parser.add_argument("--seconds", type=float, default=540, help="after which no part is begun")
    parser.add_argument("--device", default="cuda", help="cpu: to see that it runs, with --shape tiny")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="", help=argparse.SUPPRESS)  # the part that this process is
    return parser.parse_args()


def begin(name: str, args: argparse.Namespace, left: float) -> dict[str, Any]:
    """Run one part as a process; return what it found, or why it found nothing."""
    path, started = args.out / f"{name}.json", time.perf_counter()
    path.unlink(missing_ok=True)
    told = ["--out", args.out, "--shape", args.shape, "--device", args.device]
    told += ["--length", args.length, "--longest", args.longest]
    command = [sys.executable, HERE, "--only", name, *told]
    log = args.out / f"{name}.log"
    try:
        with log.open("w") as stream:
            done = subprocess.run(
                [str(one) for one in command],
                stdout=stream, stderr=subprocess.STDOUT, timeout=min(PARTS[name][0], left), check=False,
            )  # fmt: skip
        failed = "" if done.returncode == 0 else _last_line(log)
    except subprocess.TimeoutExpired:
        failed = f"ended after {time.perf_counter() - started:.0f} s"
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return {**found, "seconds": round(time.perf_counter() - started, 1), "failed": failed}


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


def table(found: dict[str, dict[str, Any]]) -> str:
    """All numbers, a line each."""
    lines = [f"{'part':<12} {'what':<44} value"]
    for name, told in found.items():
        for what, value in told.items():
            if what == "failed" and not value:
                continue
            shown = f"{value:,.4g}" if isinstance(value, float) else str(value)
            lines.append(f"{name:<12} {what:<44} {shown}")
    return "\n".join(lines)


def main() -> int:
    args = options()
    if args.list:
        for name, (limit, what) in PARTS.items():
            print(f"{name:<12} {limit:>4} s  {what}")
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    if args.only:
        sys.path.insert(0, str(HERE.parents[1] / "src"))  # a borrowed machine has nothing installed
        from speed import card_parts

        result = card_parts.run(args.only, args.shape, args.device, args.length, args.longest)
        (args.out / f"{args.only}.json").write_text(json.dumps(result, indent=1) + "\n")
        return int(bool(result.get("failed_tests")))
    wanted = list(PARTS) if args.parts == "all" else args.parts.split(",")
    if unknown := [name for name in wanted if name not in PARTS]:
        raise SystemExit(f"error: there is no part {unknown[0]}: use {', '.join(PARTS)}")
    started, found = time.perf_counter(), {}
    for name in wanted:
        left = args.seconds - (time.perf_counter() - started)
        if left < 20:
            found[name] = {"failed": "not begun: out of time"}
            continue
        found[name] = begin(name, args, left)
        print(f"{name}: {found[name]['failed'] or 'done'} ({found[name]['seconds']} s)", flush=True)
    (args.out / "all.json").write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
