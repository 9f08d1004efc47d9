"""What clients do: many at once, with texts of all lengths; answers in quiet, and while a text is read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from serving.clients import Visit, ask, share, upload, words
from serving.people import STARTING_S, asking

PAUSE_S = 0.25  # between two short questions
POWER = 6  # most texts are short, few are long
QUESTION = "\n\nWhat is this about, in short?"
Talk = list[dict[str, str]]


def lengths(clients: int, shortest: int, longest: int) -> list[int]:
    """Tokens of every client's text: from the shortest to the longest, most of them short."""
    last = max(1, clients - 1)
    return [round(shortest * (longest / shortest) ** ((n / last) ** POWER)) for n in range(clients)]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def told(visits: Sequence[Visit]) -> dict[str, Any]:
    """What came of requests that were made at the same time."""
    good = [one for one in visits if one.moments and not one.error]
    gaps = [gap for one in good for gap in one.gaps]
    found: dict[str, Any] = {
        "requests": len(visits),
        "answered": len(good),
        "tokens": sum(one.tokens for one in good),
        "pieces": sum(len(one.moments) for one in good),
        "busy_429": sum(one.busy for one in visits),
        "errors": sorted({one.error for one in visits if one.error})[:5],
        "gap_p50_ms": _ms(share(gaps, 0.5)),
        "gap_p95_ms": _ms(share(gaps, 0.95)),
        "gap_max_ms": _ms(max(gaps, default=None)),
        "first_p50_s": share((one.first_s for one in good), 0.5),
        "first_p95_s": share((one.first_s for one in good), 0.95),
    }
    if good:
        begin, end = min(one.sent for one in good), max(one.moments[-1] for one in good)
        found["seconds"] = end - begin
        found["tokens_s"] = found["tokens"] / (end - begin)
        began, ended = max(one.moments[0] for one in good), min(one.moments[-1] for one in good)
        inside = sum(
            one.tokens / len(one.moments)
            for one in good
            for moment in one.moments
            if began <= moment <= ended
        )
        found["tokens_s_all_answering"] = inside / (ended - began) if ended > began else None
    return found


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


async def many(port: int, texts: Sequence[str], tokens: int, rounds: int, limit: float) -> dict[str, Any]:
    """Every client sends a text and a question; then all ask again, in the same conversations."""
    talks: list[Talk] = [[user(text + QUESTION)] for text in texts]
    found: dict[str, Any] = {}
    for turn in range(1 + rounds):
        visits = await _all([ask(port, talk, tokens, keep=True) for talk in talks], limit)
        found["texts" if not turn else f"again_{turn}"] = told(visits)
        for talk, visit in zip(talks, visits, strict=True):
            talk += [{"role": "assistant", "content": visit.text or "?"}, user(f"And then, {turn}?")]
    return found


async def _all(asked: Sequence[Any], limit: float) -> list[Visit]:
    tasks = [asyncio.ensure_future(one) for one in asked]
    await asyncio.wait(tasks, timeout=limit)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    late = Visit(error=f"not answered within {limit:g} s")
    return [one if isinstance(one, Visit) else late for one in results]


async def fair(
    port: int, clients: int, tokens: int, text: str, quiet_s: float, limit: float
) -> dict[str, Any]:
    """Answers by themselves for some time, then while one client's long text is read.

    First all ask at the same moments, again and again, since answers are equally long; then `apart`, as
    people do. While the text is read, it and short questions take a client's place each.
    """
    _, quiet = await asking(port, clients, tokens, quiet_s)
    apart = await _apart(port, clients, tokens, quiet, quiet_s)
    reading = asyncio.ensure_future(_later(upload(port, "load-long", text.encode())))
    others = asyncio.ensure_future(asking(port, max(1, clients - 2), tokens, limit, stop=reading))
    await asyncio.sleep(STARTING_S)
    questions = await _short_questions(port, time.perf_counter() + limit, reading)
    _, busy = await others
    whole = reading.done() and not reading.cancelled()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    found: dict[str, Any] = {"clients": clients, "quiet": told(quiet), "apart": apart}
    found |= {"busy": told(busy), "short_questions": told(questions)}
    before, during = found["quiet"]["gap_p95_ms"], found["busy"]["gap_p95_ms"]
    found["p95_times_quiet"] = during / before if before and during else None
    found["text_read_s"] = reading.result().first_s if whole else None
    found["text_error"] = reading.result().error if whole else f"not read within {limit:g} s"
    return found


async def _later(visit: Coroutine[Any, Any, Visit]) -> Visit:
    """Begin when clients in processes of their own do: a short text might be read before they are there."""
    await asyncio.sleep(STARTING_S)
    return await visit


async def _apart(
    port: int, clients: int, tokens: int, before: Sequence[Visit], seconds: float
) -> dict[str, Any]:
    """Clients who begin one after the other within an answer's time; tokens/s once all have begun."""
    answer_s = share((one.moments[-1] - one.sent for one in before if one.moments), 0.5) or 0.0
    begin, visits = await asking(port, clients, tokens, seconds, spread=answer_s)
    steady, end = begin + 2 * answer_s, begin + seconds
    inside = sum(
        one.tokens / len(one.moments) for one in visits for moment in one.moments if steady <= moment <= end
    )
    return {**told(visits), "steady_tokens_s": inside / (end - steady) if end > steady else None}


async def _short_questions(port: int, until: float, stop: asyncio.Future[Any]) -> list[Visit]:
    """One client asks something short, now and then, until the time is over."""
    found: list[Visit] = []
    while time.perf_counter() < until and not stop.done():
        found.append(await ask(port, [user("A visitor asks: how was the sea?")], 8, keep=False))
        await asyncio.sleep(PAUSE_S)
    return found


def texts(sizes: Sequence[int], bytes_a_token: float) -> list[str]:
    """A text of each size, all different."""
    return [words(size, bytes_a_token, 1 + 7919 * n) for n, size in enumerate(sizes)]
