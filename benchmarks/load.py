"""Load on a real server on loopback: speed, fairness and memory for many clients, errors, slots afterwards.

    python benchmarks/load.py --out docs/results/load.json
    python benchmarks/load.py --parts bench,many,fair,whole --clients 64 --random llama-3-8b --out load.json

Parts, each bounded by `--limit` seconds:

bench     `infinipot bench --documents N`, N as many as clients: what the model does without a server
many      clients at once, texts of `--shortest` to `--longest` tokens, a question each; then all ask again
fair      answers by themselves, at the same moments and apart, and while `--longest` tokens are read
whole     the same texts in whole caches of plain transformers, until memory runs out: users held
visitors  200 requests of mixed lengths, 16 at a time, a tenth of whose senders leave early (needs locust)
soak      1,000 small requests, 4 at a time (needs locust)

Clients of `fair` are in processes of their own, as users are on other machines, and keep their connections.
The server's memory is looked at every tenth of a second, and held against the bound that it printed.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.request import urlopen

import psutil

from serving.phases import fair, lengths, many, texts
from serving.table import rows

HERE = Path(__file__).parent
VISITORS = HERE / "visitors.py"
PARTS = ("bench", "many", "fair", "whole", "visitors", "soak")
BYTES_A_TOKEN = {"llama-3-8b": 4.0}  # of these texts; 4.4 for real vocabularies, about


class Server:
    """A server as a process, and its memory over time."""

    def __init__(self, told: dict, folder: Path, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        places = {"port": self.port, "store": str(folder / "pots")}
        self.told = {**told, "settings": {**told["settings"], **places}}
        self.log = log.open("w")
        command = [sys.executable, str(HERE / "serving" / "start.py"), json.dumps(self.told)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.resident: list[tuple[float, int]] = []
        self.files: list[tuple[float, int]] = []  # of it, what is mapped from files or shared
        self.held: list[int] = []  # what the server itself says: of a card, where it is on one
        self._watching = threading.Event()

    def wait(self, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urlopen(f"{self.url}/ready", timeout=5):
                    break
            except OSError:
                time.sleep(0.5)
        else:
            raise SystemExit(f"the server did not start: {Path(self.log.name).read_text()[-2000:]}")
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        process = psutil.Process(self.process.pid)
        while not self._watching.wait(0.1):
            try:
                now, memory = time.monotonic(), process.memory_info()
                self.resident.append((now, memory.rss))
                self.files.append((now, getattr(memory, "shared", 0)))
                if len(self.resident) % 5 == 0:
                    self.held.append(self.state()["memory_bytes"])
            except psutil.NoSuchProcess:
                return
            except OSError:  # busy, or ending
                continue

    def state(self) -> dict:
        with urlopen(f"{self.url}/v1/state", timeout=30) as answer:
            return json.load(answer)

    def since(self, moment: float) -> list[int]:
        return [size for at, size in self.resident if at >= moment]

    def memory(self) -> dict:
        """The most it held by its own count, and its bound."""
        state = self.state()
        most = max([*self.held, state["memory_bytes"]])
        names = ("pots_bytes", "memory_bound_bytes", "slots_busy", "queued")
        within = most <= state["memory_bound_bytes"]
        return {"most_bytes": most, "within_bound": within, **{name: state[name] for name in names}}

    def stop(self) -> int:
        self._watching.set()
        self.process.terminate()
        return self.process.wait(60)


def visit(server: Server, folder: Path, name: str, users: int, settings: dict[str, str], limit: int) -> dict:
    """Let visitors come; return what locust counted."""
    began = time.monotonic()
    command = [sys.executable, "-m", "locust", "-f", str(VISITORS), "--headless", "--only-summary"]
    command += ["-u", str(users), "-r", str(users), "-t", f"{limit}s", "--host", server.url]
    command += ["--csv", str(folder / name), "--stop-timeout", "1"]
    done = subprocess.run(
        command,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=limit + 120,
    )
    with (folder / f"{name}_stats.csv").open() as file:
        rows = {row["Name"]: row for row in csv.DictReader(file)}
    with (folder / f"{name}_failures.csv").open() as file:
        failures = list(csv.DictReader(file))
    wanted = ("stays", "leaves", "429")
    counts = {key: int(rows[key]["Request Count"]) if key in rows else 0 for key in wanted}
    time.sleep(3)
    state, sizes = server.state(), server.since(began)
    return {
        "users": users,
        "requests": counts["stays"] + counts["leaves"],
        "left_early": counts["leaves"],
        "answered_429": counts["429"],
        "failures": [f"{row['Occurrences']} x {row['Error']}" for row in failures],
        "seconds": round(time.monotonic() - began, 1),
        "median_ms": int(float(rows["stays"]["Median Response Time"] or 0)),
        "locust_exit": done.returncode,
        "peak_resident_bytes": max(sizes),
        "bound_bytes": state["memory_bound_bytes"],
        "slots_busy_afterwards": state["slots_busy"],
        "queued_afterwards": state["queued"],
    }


def flat(sizes: list[int]) -> dict:
    """Resident memory over a soak: the tenths' medians, and how much the last differs from the second."""
    tenth = max(1, len(sizes) // 10)
    medians = [sorted(sizes[k * tenth : (k + 1) * tenth])[tenth // 2] for k in range(10)]
    return {"resident_by_tenth": medians, "growth": round(medians[-1] / medians[1] - 1, 4)}


def locust(args: argparse.Namespace, server: Server, folder: Path, part: str) -> dict:
    """Visitors of mixed lengths who may leave, or a soak of small requests."""
    settings = {"LOAD_WORDS": args.words, "LOAD_LEAVING": "0.1", "LOAD_TOKENS": "16"}
    settings |= {"LOAD_COUNT": str(args.requests), "LOAD_MODEL": server.told.get("random") or args.model}
    if part == "visitors":
        return visit(server, folder, part, 16, settings, args.limit)
    settings |= {"LOAD_WORDS": "5", "LOAD_LEAVING": "0", "LOAD_TOKENS": "4", "LOAD_COUNT": str(args.soak)}
    began = time.monotonic()
    found = visit(server, folder, part, 4, settings, args.limit)
    return found | flat(server.since(began))


def beside(part: str, told: dict, limit: float) -> dict:
    """Measure something in a process of its own, which has the card to itself."""
    command = [sys.executable, str(HERE / "serving" / "beside.py"), part, json.dumps(told)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {limit:g} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(lines[-1][7:]) if lines else {"failed": (done.stderr or done.stdout)[-1500:]}


def served(args: argparse.Namespace, parts: list[str], sizes: list[int], folder: Path, found: dict) -> None:
    """Run the parts that need a server, on one; what is found is written down after each."""
    settings = {"slots": args.clients, "conversations": args.spare, "queue": 2 * args.clients}
    settings |= {"capacity": args.capacity, "recall": args.recall, "device": args.device}
    settings |= {"slowdown": args.slowdown} if args.slowdown else {}
    settings |= {"pot_bits": args.pot_bits} if args.pot_bits else {}
    told = {"model": args.model, "random": args.random, "fuse": args.fuse, "settings": settings}
    bytes_a_token = BYTES_A_TOKEN.get(args.random, 4.0 if args.random else 4.4)
    log = args.out.with_suffix(".log")
    began, server = time.monotonic(), Server(told, folder, log)
    found["server"] = told
    try:
        server.wait(args.limit)
        found["start_s"] = round(time.monotonic() - began, 1)
        for part in parts:
            print(f"{part} ...", flush=True)
            if part == "many":
                sent = texts(sizes, bytes_a_token)
                found[part] = asyncio.run(many(server.port, sent, args.tokens, args.rounds, args.limit))
            elif part == "fair":
                long = texts([args.longest], bytes_a_token)[0]
                limits = args.quiet, args.limit
                found[part] = asyncio.run(fair(server.port, args.clients, args.tokens, long, *limits))
            else:
                found[part] = locust(args, server, folder, part)
            found[part]["memory"] = server.memory()
            args.out.write_text(json.dumps(found, indent=1) + "\n")
    finally:
        found["server_exit"] = server.stop()
        found["server_log"] = [line[24:] for line in log.read_text().splitlines()][-20:]


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", default="visitors,soak", help=", ".join(PARTS))
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--random", default="", metavar="SHAPE", help="random weights of a shape instead")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--fuse", action="store_true", help="compile layers on a card")
    parser.add_argument("--capacity", type=int, default=1024)
    parser.add_argument("--recall", type=int, default=None, help="as of `infinipot serve`; 0 for none")
    parser.add_argument("--slowdown", type=float, default=None, help="as of `infinipot serve`")
    parser.add_argument("--pot-bits", type=int, default=None, help="as of `infinipot serve`")
    parser.add_argument("--clients", type=int, default=4, help="and slots of the server")
    parser.add_argument("--spare", type=int, default=4, help="pots beside the slots")
    parser.add_argument("--shortest", type=int, default=2048)
    parser.add_argument("--longest", type=int, default=2**20)
    parser.add_argument("--tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--rounds", type=int, default=2, help="times that all ask again")
    parser.add_argument("--quiet", type=float, default=20.0, help="seconds of answers by themselves")
    parser.add_argument("--limit", type=int, default=1500, help="seconds of a part")
    parser.add_argument("--read-up-to", type=int, default=8192, help="tokens of texts that whole caches read")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--soak", type=int, default=1000)
    parser.add_argument("--words", default="5,20,100,400,1500", help="lengths that visitors mix")
    return parser


def main() -> None:
    args = options().parse_args()
    parts = args.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"there is no part {', '.join(sorted(unknown))}: use {', '.join(PARTS)}")
    sizes = lengths(args.clients, args.shortest, args.longest)
    random.Random(1).shuffle(sizes)
    found: dict = {"command": sys.argv, "lengths": sizes}
    named = {"model": "" if args.random else args.model, "random": args.random, "device": args.device}
    if "bench" in parts:
        print("bench ...", flush=True)
        told = {"documents": args.clients, "capacity": args.capacity, "tokens": args.tokens}
        found["bench"] = beside("bench", {**named, **told, "fuse": args.fuse}, args.limit)
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    if on_server := [part for part in parts if part not in ("bench", "whole")]:
        with tempfile.TemporaryDirectory() as name:
            served(args, on_server, sizes, Path(name), found)
    if "whole" in parts:
        print("whole ...", flush=True)
        told = {"lengths": sizes, "read_up_to": args.read_up_to, "limit": args.limit}
        found["whole"] = beside("whole", {**named, **told}, args.limit)
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    for part, what, value in rows(found):
        print(f"{part:10} {what:38} {value:>18}")
    for part in ("bench", "whole"):
        if "failed" in found.get(part, {}):
            print(part, "failed:", found[part]["failed"])


if __name__ == "__main__":
    main()
