"""Reading between tokens: answers stay within their slowdown, texts go on, and a quiet card is used whole."""

from __future__ import annotations

import random

import pytest

from infinipot.reading.plan import BLOCK
from infinipot.server.scheduler.pace import FEW, REFRESH, Pace

H200_8B = {2048: 0.060, 1024: 0.032, 512: 0.017, 256: 0.012}  # seconds of a chunk, about
CPU = {size: size / 236 for size in (16, 32, 64, 128, 256, 512, 1024, 2048)}


class Simulated:
    """A device on which a step takes what is given, and a chunk what its size takes."""

    def __init__(
        self,
        device: str,
        step: float,
        chunks: dict[int, float],
        slowdown: float = 2.5,
        fixed: int | None = None,
    ) -> None:
        self.now, self.step, self.chunks = 0.0, step, chunks
        self.pace = Pace(device, slowdown, fixed, lambda: self.now)
        self.gaps: list[float] = []
        self.read: list[int] = []

    def run(self, steps: int, answering: int = 64) -> None:
        for _ in range(steps):
            chunk = self.pace.chunk(answering, answering + 1)
            took = self.step + (self.chunks[chunk] if chunk else 0.0)
            self.now += took
            self.pace.note(answering, chunk)
            self.gaps.append(took)
            self.read.append(chunk)

    def p95(self) -> float:
        return sorted(self.gaps)[int(0.95 * len(self.gaps))]


def test_answers_on_a_card_slow_down_no_more_than_said_and_the_text_goes_on() -> None:
    card = Simulated("cuda", 0.012, H200_8B)
    card.run(2000)
    assert card.p95() <= 2.5 * 0.012 + 1e-9
    assert set(card.read[50:]) == {0, 512}  # the largest chunk that fits between
    assert sum(card.read) / card.now > 0.45 * BLOCK / H200_8B[BLOCK]  # nearly half as fast as alone
    assert card.read.count(0) < 0.05 * len(card.read)


@pytest.mark.parametrize(("slowdown", "chunk"), [(1.1, 256), (2.1, 256), (4.0, 1024), (7.0, 2048)])
def test_the_slowdown_decides_how_much_is_read(slowdown: float, chunk: int) -> None:
    card = Simulated("cuda", 0.012, H200_8B, slowdown)
    card.run(3000)
    assert max(card.read[100:]) == chunk
    mean = sum(card.gaps) / len(card.gaps)
    assert mean <= slowdown * 0.012 * 1.02  # where even the smallest is too long, it comes more rarely


def test_a_processor_reads_in_small_chunks_too() -> None:
    cpu = Simulated("cpu", 0.084, CPU)
    cpu.run(1000, answering=1)
    assert cpu.p95() <= 2.5 * 0.084
    assert max(cpu.read[100:]) == 16  # a larger one was tried once


def test_it_learns_that_steps_have_become_faster_or_slower() -> None:
    card = Simulated("cuda", 0.012, H200_8B)
    card.run(300)
    card.step = 0.030
    card.run(20 * REFRESH)
    assert card.read[-1] == 1024
    card.step = 0.012
    card.run(20 * REFRESH)
    assert card.read[-1] == 512


def test_another_number_of_answers_is_measured_before_reading_goes_on() -> None:
    card = Simulated("cuda", 0.012, H200_8B)
    card.run(110)
    assert card.read[-1]
    card.run(1, answering=3)
    assert card.read[-1] == 0
    card.run(1, answering=4)  # padded to as many
    assert card.read[-1]


def test_who_reads_alone_reads_whole_blocks() -> None:
    for device, several in (("cuda", BLOCK), ("cpu", FEW)):
        pace = Pace(device, 2.5)
        assert pace.chunk(answering=0, running=1) == BLOCK
        assert pace.chunk(answering=0, running=3) == several


def test_a_fixed_chunk_is_always_that() -> None:
    card = Simulated("cuda", 0.012, {**H200_8B, 100: 0.01}, fixed=100)
    card.run(50)
    assert set(card.read) == {100}
    assert card.pace.chunk(answering=0, running=2) == 100
    assert card.pace.chunk(answering=0, running=1) == BLOCK


def test_sizes_that_mix_are_begun_where_each_was_captured() -> None:
    """A cycle is warmed up in chunks of one size, from its beginning to its end."""
    warm = {(at, size) for size in (2048, 1024, 512, 256) for at in range(0, 2048, size)}
    pace, drawn, seen = Pace("cuda", 2.5), random.Random(1), set()
    for _ in range(300):
        at = 0
        while at < 2048:
            chunk = drawn.choice((0, 256, 512, 1024, 2048))
            size = pace.block(chunk, at)
            assert size == 256 or size <= chunk
            seen.add((at, size))
            at += size
        assert at == 2048
    assert seen == warm
    assert Pace("cpu", 2.5).block(512, 100) == 512
    assert pace.block(2048, 100) == 2048  # nothing is captured from there, so one pass is the quickest
    assert Pace("cuda", 2.5, 100).block(100, 256) == 100
