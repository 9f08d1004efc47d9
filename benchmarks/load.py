"""Load and soak of a real server on loopback: errors, memory against the printed bound, slots afterwards.

    python benchmarks/load.py --out docs/results/load.json

Load: 200 requests, 16 at a time, mixed lengths, a tenth of whose senders leave early. Soak: 1,000 small
requests, 4 at a time. Locust sends them; every tenth of a second the server's resident memory is looked at.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.request import urlopen

import psutil

VISITORS = Path(__file__).with_name("visitors.py")


class Server:
    """`infinipot serve` as a process, and its memory over time."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "infinipot.cli.main", "serve", "--port", str(port)]
        command += ["--store", str(folder / "pots"), *arguments]
        self.command = ["infinipot", "serve", *arguments]
        self.log = (folder / "server.log").open("w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.resident: list[tuple[float, int]] = []
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
                self.resident.append((time.monotonic(), process.memory_info().rss))
            except psutil.NoSuchProcess:
                return

    def state(self) -> dict:
        with urlopen(f"{self.url}/v1/state", timeout=30) as answer:
            return json.load(answer)

    def since(self, moment: float) -> list[int]:
        return [size for at, size in self.resident if at >= moment]

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--capacity", default="1024")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--soak", type=int, default=1000)
    parser.add_argument("--words", default="5,20,100,400,1500", help="lengths that are mixed")
    args = parser.parse_args()
    serving = ["--model", args.model, "--capacity", args.capacity, "--slots", "4", "--conversations", "4"]
    serving += ["--queue", "8"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Server(serving, folder)
        try:
            server.wait()
            found = {"command": server.command}
            settings = {"LOAD_WORDS": args.words, "LOAD_LEAVING": "0.1", "LOAD_TOKENS": "16"}
            settings |= {"LOAD_COUNT": str(args.requests), "LOAD_MODEL": args.model}
            found["load"] = visit(server, folder, "load", 16, settings, 1500)
            print(json.dumps(found["load"]), flush=True)
            began = time.monotonic()
            settings |= {
                "LOAD_WORDS": "5",
                "LOAD_LEAVING": "0",
                "LOAD_TOKENS": "4",
                "LOAD_COUNT": str(args.soak),
            }
            found["soak"] = visit(server, folder, "soak", 4, settings, 1500)
            found["soak"] |= flat(server.since(began))
            print(json.dumps(found["soak"]), flush=True)
        finally:
            code = server.stop()
        found["server_exit"] = code
        found["server_log"] = [line[24:] for line in (folder / "server.log").read_text().splitlines()][-20:]
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
