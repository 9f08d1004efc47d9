"""Two replicas on Ray Serve, by the documented command; one is killed under load, none lost in silence."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
KEY = "key-of-the-first-tenant"
HEADERS = {"Authorization": f"Bearer {KEY}"}
CHAT = "/v1/chat/completions"
WORKERS = 8
pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, psutil.Process]]:
    """`serve run` on deploy/ray-serve.yaml, with a toy model in place of the real one."""
    folder = tmp_path_factory.mktemp("ray")
    (folder / "spool").mkdir()
    (folder / "keys").write_text(KEY)
    told = yaml.safe_load((ROOT / "deploy" / "ray-serve.yaml").read_text())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told["http_options"]["port"] = port
    (app,) = told["applications"]
    app["runtime_env"]["env_vars"] |= {
        "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)]),
        "OMP_NUM_THREADS": "1",
        "INFINIPOT_BUILD": "toy_server:ray_build",
        "INFINIPOT_MODEL": "toy",
        "INFINIPOT_CAPACITY": "256",
        "INFINIPOT_STORE": str(folder / "pots"),
        "INFINIPOT_SPOOL": str(folder / "spool"),
        "INFINIPOT_API_KEY_FILE": str(folder / "keys"),
    }
    (folder / "serve.yaml").write_text(yaml.safe_dump(told))
    with running(folder) as process:
        url = f"http://127.0.0.1:{port}"
        await_ready(url, folder / "log.txt", process)
        yield url, process


@contextlib.contextmanager
def running(folder: Path) -> Iterator[psutil.Process]:
    """Start the command; at the end, end it and every process that it started."""
    env = {**os.environ, "RAY_ADDRESS": "local", "RAY_USAGE_STATS_ENABLED": "0"}
    env |= {"RAY_enable_metrics_collection": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (folder / "log.txt").open("wb") as log:
        command = [sys.executable, "-m", "ray.serve.scripts", "run", str(folder / "serve.yaml")]
        started = psutil.Popen(command, stdout=log, stderr=log, env=env)
    try:
        yield started
    finally:
        every = started.children(recursive=True)
        started.send_signal(signal.SIGINT)
        with contextlib.suppress(psutil.TimeoutExpired):
            started.wait(20)
        for process in [started, *every]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs([started, *every], timeout=20)


def await_ready(url: str, log: Path, process: psutil.Process) -> None:
    for _ in range(480):
        assert process.is_running(), log.read_text()
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/ready", headers=HEADERS, timeout=10).status_code == 200:
                return
        time.sleep(0.25)
    raise AssertionError(log.read_text()[-4000:])


def replicas(process: psutil.Process) -> list[psutil.Process]:
    """The replicas' processes, among those that we started."""
    found = []
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "ServeReplica" in "".join(child.cmdline()):
                found.append(child)
    return found


def outcome(url: str, stream: bool) -> str:
    """Ask once: whole, an error that says so, or lost."""
    body = {
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 12,
        "stream": stream,
        "keep": False,
    }
    try:
        got = httpx.post(url + CHAT, json=body, headers=HEADERS, timeout=60)
    except httpx.HTTPError:
        return "error"  # the connection broke: the client knows
    if got.status_code != 200:
        return "error"
    if stream:
        last = got.text.strip().splitlines()[-1:]
        return "whole" if last == ["data: [DONE]"] else "error" if '"error"' in str(last) else "lost"
    return "whole" if got.json()["choices"][0]["finish_reason"] else "lost"


SEA = "The sea was calm and nobody spoke. " * 40


def keep_sea(url: str) -> None:
    stream = {**HEADERS, "Accept": "text/event-stream"}
    made = httpx.post(f"{url}/v1/pots/sea?replace=true", content=SEA, headers=stream, timeout=60)
    assert made.status_code == 201, made.text
    assert made.text.strip().splitlines()[-2] == "event: done"


def test_one_store_for_all_replicas(deployed: tuple[str, psutil.Process]) -> None:
    url, process = deployed
    eventually(lambda: len(replicas(process)) == 2)
    assert httpx.get(f"{url}/v1/models", timeout=20).status_code == 401
    assert httpx.get(f"{url}/health", timeout=20).json() == {"status": "ok"}
    keep_sea(url)
    for _ in range(8):  # whichever replica answers
        assert httpx.get(f"{url}/v1/pots/sea", headers=HEADERS, timeout=20).json()["tokens_read"] == len(SEA)
        body = {"messages": [{"role": "user", "content": "Well?"}], "pot": "sea", "max_tokens": 2}
        got = httpx.post(url + CHAT, json=body, headers=HEADERS, timeout=60)
        assert got.json()["usage"]["prompt_tokens"] < 64


def test_a_replica_killed_under_load_loses_nothing_in_silence(deployed: tuple[str, psutil.Process]) -> None:
    url, process = deployed
    keep_sea(url)
    seen: list[str] = []
    done = threading.Event()

    def worker(number: int) -> None:
        while not done.is_set():
            seen.append(outcome(url, stream=bool(number % 2)))

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: seen.count("whole") >= 10)
        eventually(lambda: len(replicas(process)) == 2)
        victim, survivor = replicas(process)
        victim.kill()
        before = len(seen)
        eventually(lambda: seen[before:].count("whole") >= 30)  # the other one goes on
        eventually(lambda: len({one.pid for one in replicas(process)} - {victim.pid}) == 2)
    finally:
        done.set()
        for thread in threads:
            thread.join(90)
    told = Counter(seen)
    assert told["lost"] == 0, told
    assert told["whole"] + told["error"] == len(seen)
    assert survivor.is_running()
    assert told["whole"] > 4 * told["error"], told
    assert httpx.get(f"{url}/v1/pots/sea", headers=HEADERS, timeout=20).status_code == 200
    state = json.loads(httpx.get(f"{url}/v1/state", headers=HEADERS, timeout=20).text)
    assert state["queued"] == 0


def eventually(true: Any, seconds: float = 90) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "it never happened"
        time.sleep(0.1)
