"""Threads that leave a core to other programs, and come back."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from infinipot.errors import ConfigError
from infinipot.hf.speed import threads
from infinipot.hf.speed.threads import Times, Watch, follow, times, use_threads

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setattr(threads._Following, "watch", None)
    monkeypatch.setattr(threads, "QUOTA", Path("nowhere"))
    for name in threads.NAMED:
        monkeypatch.delenv(name, raising=False)
    yield
    torch.set_num_threads(before)


class Machine:
    """Cores on which others compute as much as a test says; every look is a second after the last."""

    def __init__(self) -> None:
        self.now = Times(0.0, 0.0, 0.0)

    def read(self) -> Times:
        return self.now

    def second(self, others: float, own: float = 1.0) -> None:
        self.now = Times(self.now.clock + 1, self.now.all + others + own, self.now.own + own)


def watched(most: int, cores: int) -> tuple[Machine, Watch]:
    torch.set_num_threads(most)
    machine = Machine()
    return machine, Watch(most, cores, machine.read)


def looked(machine: Machine, watch: Watch, others: float, own: float = 1.0) -> int:
    machine.second(others, own)
    watch.look()
    assert torch.get_num_threads() == watch.chosen
    return watch.chosen


def test_a_busy_program_gets_a_core_and_gives_it_back() -> None:
    machine, watch = watched(2, 2)
    found = [looked(machine, watch, others) for others in (0.0, 0.3, 0.5, 1.0, 1.0, 0.3, 0.1, 0.3)]
    assert found == [2, 2, 1, 1, 1, 1, 2, 2]


def test_one_thread_is_left_whatever_others_take() -> None:
    machine, watch = watched(2, 2)
    assert [looked(machine, watch, others, own=0.2) for others in (2.0, 64.0, 0.0)] == [1, 1, 2]


def test_cores_beyond_the_threads_are_for_others_first() -> None:
    machine, watch = watched(4, 8)
    assert [looked(machine, watch, others) for others in (4.0, 4.3, 5.0, 6.9, 4.1)] == [4, 4, 3, 1, 4]


def test_own_time_is_nobody_elses() -> None:
    machine, watch = watched(2, 2)
    assert [looked(machine, watch, 0.0, own=own) for own in (2.0, 0.1, 2.0)] == [2, 2, 2]


def test_a_number_that_somebody_sets_meanwhile_counts() -> None:
    machine, watch = watched(4, 8)
    torch.set_num_threads(3)
    assert [looked(machine, watch, others) for others in (0.0, 7.0, 0.0)] == [3, 1, 3]


def test_what_the_watch_set_in_another_thread_is_nobodys_wish() -> None:
    machine, watch = watched(2, 2)
    first, second = (ThreadPoolExecutor(1) for _ in range(2))
    with first, second:
        for one in (first, second):
            assert one.submit(looked, machine, watch, 1.0).result() == 1
        assert first.submit(looked, machine, watch, 0.0).result() == 2
        assert [second.submit(looked, machine, watch, 0.0).result() for _ in range(2)] == [2, 2]


@pytest.mark.parametrize("name", threads.NAMED)
def test_a_number_in_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "2")
    use_threads(None, CPU)
    assert threads._Following.watch is None


@pytest.mark.parametrize(("quota", "watches"), [("max 100000", True), ("200000 100000", False), ("", True)])
def test_a_container_with_a_share_of_the_cores_keeps_torchs_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str, watches: bool
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(threads, "QUOTA", tmp_path / "cpu.max")
    use_threads(None, CPU)
    assert (threads._Following.watch is not None) == watches


def test_a_look_that_fails_ends_the_watch_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, watch = watched(2, 2)
    monkeypatch.setattr(threads._Following, "watch", watch)
    monkeypatch.setattr(threads._Following, "next", 0.0)
    monkeypatch.setattr(machine, "now", None)
    follow()
    assert threads._Following.watch is None
    assert torch.get_num_threads() == 2


def test_a_named_number_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(None, CPU)
    assert threads._Following.watch is not None
    use_threads(2, CPU)
    monkeypatch.setattr(threads._Following, "next", 0.0)
    follow()
    assert torch.get_num_threads() == 2
    assert threads._Following.watch is None
    with pytest.raises(ConfigError, match="use 1 or more"):
        use_threads(0, CPU)


def test_on_a_card_nothing_is_watched() -> None:
    use_threads(None, torch.device("cuda"))
    assert threads._Following.watch is None


def test_a_second_model_does_not_take_fewer_threads_for_all_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, watch = watched(2, 2)
    monkeypatch.setattr(threads._Following, "watch", watch)
    looked(machine, watch, 1.0)
    use_threads(None, CPU)
    assert threads._Following.watch is watch
    assert looked(machine, watch, 0.0) == 2


def test_looks_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = 100.0, []
    monkeypatch.setattr(threads, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(threads._Following, "watch", SimpleNamespace(look=lambda: looks.append(now)))
    monkeypatch.setattr(threads._Following, "next", 0.0)
    for _ in range(15):
        follow()
        now += threads.LOOK / 10
    assert len(looks) == 2


def test_without_psutil_threads_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    use_threads(None, CPU)
    assert threads._Following.watch is None


def test_niced_programs_do_not_count_for_one_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = [SimpleNamespace(user=2.0, nice=50.0, system=1.0, idle=9.0) for _ in range(os.cpu_count() or 1)]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: cores)
    monkeypatch.setattr(os, "nice", lambda by: 0, raising=False)
    assert times().all == 3 * len(threads._cores())
    monkeypatch.setattr(os, "nice", lambda by: 10, raising=False)
    assert times().all == 53 * len(threads._cores())


def test_a_process_that_computes_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        time.sleep(0.3)
        before = times()
        time.sleep(1.0)
        others = times().others_since(before)
        busy.kill()
    assert others > 0.2  # beside whatever else this machine does
