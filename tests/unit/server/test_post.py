"""Events of a step arrive together, in order, and those of the next while the loop is busy with them."""

import asyncio
import threading
from typing import Any

import pytest

from infinipot.server.scheduler.post import Inbox, Post

MORE = ("steps",)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def _settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


class Listener:
    """Somebody who waits for events in this loop."""

    def __init__(self, post: Post) -> None:
        self.post, self.loop, self.queue = post, asyncio.get_running_loop(), Inbox()

    def put(self, event: str) -> None:
        self.post.put(self.loop, self.queue, event)

    def taken(self) -> list[str]:
        return self.queue.take()


def test_events_of_a_step_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        post, woken = Post(), list[object]()
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def waking(*given: Any) -> asyncio.Handle:
            woken.append(given)
            return wake(*given)

        monkeypatch.setattr(loop, "call_soon_threadsafe", waking)
        first, second = Listener(post), Listener(post)
        with post.together():
            for text in "ab":
                first.put(text)
                second.put(text.upper())
            await _settle()
            assert not woken
        await _settle()
        assert len(woken) == 1
        assert (first.taken(), second.taken()) == (["a", "b"], ["A", "B"])

    asyncio.run(run())


def test_while_the_loop_is_busy_and_as_long_again_events_wait() -> None:
    async def run() -> None:
        clock = Clock()
        post = Post(clock)
        one = Listener(post)
        with post.together():
            one.put("a")
        with post.together(MORE):  # the loop has not even begun
            one.put("b")
        await asyncio.sleep(0)
        clock.now = 2.0  # what it took
        await _settle()
        assert one.taken() == ["a"]
        clock.now = 3.0
        with post.together(MORE):
            one.put("c")
        await _settle()
        assert one.taken() == []
        clock.now = 4.5
        with post.together(MORE):
            pass
        await _settle()
        assert one.taken() == ["b", "c"]
        with post.together():  # none will come
            one.put("d")
        await _settle()
        assert one.taken() == ["d"]

    asyncio.run(run())


def test_what_is_held_back_comes_before_what_is_put_later() -> None:
    async def run() -> None:
        post = Post(Clock())
        one = Listener(post)
        with post.together():
            one.put("a")
        with post.together(MORE):
            one.put("b")
        one.put("c")
        await _settle()
        assert one.taken() == ["a", "b", "c"]

    asyncio.run(run())


def test_another_threads_event_is_not_held_back() -> None:
    async def run() -> None:
        post = Post(Clock())
        one = Listener(post)
        with post.together():
            closing = threading.Thread(target=one.put, args=("closing",))
            closing.start()
            closing.join()
            await _settle()
            assert one.taken() == ["closing"]

    asyncio.run(run())


def test_a_closed_loop_holds_nothing_up() -> None:
    clock = Clock()
    post = Post(clock)

    async def made() -> Listener:
        return Listener(post)

    gone = asyncio.run(made())
    with post.together():
        gone.put("nobody hears this")

    async def run() -> None:
        one = Listener(post)
        clock.now = 0.6
        with post.together(MORE):
            one.put("a")
        await _settle()
        assert one.taken() == ["a"]

    asyncio.run(run())
