"""Speed and memory of recipes as shares of what the machine can do, beside other projects; Figure 7.

    python benchmarks/bench.py --random llama-3-8b --lengths 16k,128k,1m --out speed
    python benchmarks/bench.py --model smollm2 --chunk 2048+2048 --peers transformers,llama.cpp --gguf FILE

`infinipot bench` measures the same rows without peers of other projects, ceilings and parts of a cycle. A
peer that is not installed, too slow or out of memory says so in its row and ends nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from infinipot.cli.bench import LENGTHS, drawn
from infinipot.errors import ConfigError, InfiniPotError
from infinipot.text.files import title
from speed.comparison import PEERS, Comparison, peers_on, run
from speed.tables import tables


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="", help="alias, hub id, folder or .gguf file")
    parser.add_argument("--random", default="", metavar="SHAPE", help="random weights of a shape")
    parser.add_argument("--recipe", default="infinipot", help="with commas between")
    parser.add_argument("--lengths", help="tokens of text: 32k,1m")
    parser.add_argument("--capacity", default="4096", help="2k,4k")
    parser.add_argument("--keep", type=int)
    parser.add_argument("--new-tokens", type=int, default=64, help="the first 8 are not timed")
    parser.add_argument("--documents", help="documents answered at once: 1,8")
    parser.add_argument("--chunk", metavar="NEW+CACHED", help="alternating rounds with peers: 2048+2048")
    parser.add_argument("--rounds", type=int, default=7, help="alternating rounds")
    parser.add_argument("--no-shares", action="store_true", help="do not take a cycle apart")
    parser.add_argument("--peers", default="all", help=f"all, none, or {', '.join(PEERS)}")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of a peer for one text")
    parser.add_argument("--kvpress", default="", metavar="PYTHON", help="interpreter that has kvpress")
    parser.add_argument("--llama", default="", metavar="PYTHON", help="interpreter with llama-cpp-python")
    parser.add_argument("--gguf", default="", metavar="FILE", help="what llama.cpp reads")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--weights", default="full", help="auto, int4, int8, full; peers have their own")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--no-fuse", action="store_true", help="no fused kernels on CUDA")
    parser.add_argument("--out", type=Path, help="folder for bench.json and figure7.png, .svg")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def chunk(text: str) -> tuple[int, int]:
    """Read NEW+CACHED, as in 2048+2048."""
    parts = text.split("+")
    if len(parts) != 2:
        raise ConfigError(f"chunk is '{text}'; use NEW+CACHED, as in 2048+2048")
    (new,), (cached,) = map(LENGTHS.parse_list, parts)
    return new, cached


def names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def plan_of(args: argparse.Namespace) -> Comparison:
    only = bool(args.chunk or args.documents) and args.lengths is None  # what was named, and nothing else
    return Comparison(
        model=args.model or ("" if args.random else "smollm2"),
        random=args.random,
        recipes=names(args.recipe),
        lengths=() if only else LENGTHS.parse_list(args.lengths or "32k"),
        capacities=LENGTHS.parse_list(args.capacity),
        options={"keep": args.keep} if args.keep else {},
        new_tokens=args.new_tokens,
        documents=LENGTHS.parse_list(args.documents) if args.documents else (),
        limit=args.limit,
        device=args.device,
        dtype=args.dtype,
        weights=args.weights,
        threads=args.threads,
        fuse=not args.no_fuse,
        command=("python", "benchmarks/bench.py", *map(title, sys.argv[1:])),
        chunk=chunk(args.chunk) if args.chunk else None,
        rounds=args.rounds,
        shares=not args.no_shares,
        peers={"all": peers_on(args.device), "none": ()}.get(args.peers, names(args.peers)),
        kvpress=args.kvpress,
        llama=args.llama,
        gguf=args.gguf,
    )


def main() -> None:
    args = options().parse_args()
    try:
        plan = plan_of(args)
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
        told = drawn(run(plan), quiet=args.json)
    except InfiniPotError as error:
        raise SystemExit(f"error: {error}") from error
    if args.out:
        (args.out / "bench.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", "utf-8")
        if told["rows"]:
            from speed.figure7 import draw

            draw(told, args.out)
    if args.json:
        print(json.dumps(told, ensure_ascii=False))
    else:
        console = Console(width=None if sys.stdout.isatty() else 100)
        for part in tables(told):
            console.print(part, highlight=False)


if __name__ == "__main__":
    main()
