"""What answers look like: OpenAI's objects, llama.cpp's progress, and pots. No HTTP."""

import secrets
import time
from collections.abc import Sequence
from typing import Any

from infinipot.reading.progress import Progress
from infinipot.server.http.service import Outcome
from infinipot.server.scheduler.requests import Answered, Call, Queued, Reading, Scored
from infinipot.store import Card

CARD = "title model created updated tokens_read cycles fill capacity bytes source_bytes"


def model_object(name: str, created: int) -> dict[str, Any]:
    """Return the served model."""
    return {"id": name, "object": "model", "created": created, "owned_by": "infinipot"}


def pot_object(name: str, card: Card) -> dict[str, Any]:
    """Return a kept pot."""
    known = {key: getattr(card, key) for key in CARD.split()}
    return {"id": name, "object": "pot", **known, "recipe": dict(card.recipe)}


def reading_object(reading: Reading, bytes_total: int) -> dict[str, Any]:
    """Return how far the reading of a file is."""
    step, text = reading.progress, {"bytes_read": min(bytes_total, reading.bytes), "bytes_total": bytes_total}
    return {"tokens_read": step.tokens_read, "seconds": round(step.seconds, 3), **_pot(step), **text}


def queue_object(queued: Queued) -> dict[str, Any]:
    """Return a place in the queue."""
    return {"position": queued.position, "expected_wait_s": round(queued.wait_s, 1)}


def _pot(step: Progress) -> dict[str, int | None]:
    return {"fill": step.fill, "capacity": step.capacity, "cycles": step.cycles}


def usage_object(ends: Sequence[Answered]) -> dict[str, Any]:
    """Return true counts: what was known before is part of the prompt, and said to be; several share one."""
    written = sum(end.completion for end in ends)
    counts = {"prompt_tokens": ends[0].prompt, "completion_tokens": written}
    details = {"prompt_tokens_details": {"cached_tokens": ends[0].cached}}
    return {**counts, "total_tokens": sum(counts.values()), **details}


def call_object(call: Call) -> dict[str, Any]:
    """Return a function's call, with a name of its own."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


class Answer:
    """One request's objects, whole or in chunks; `chat` chooses between OpenAI's two families."""

    def __init__(self, model: str, chat: bool, scored: bool = False) -> None:
        self.chat, self._scored = chat, scored
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._about = {"created": int(time.time()), "model": model}
        self._offsets: dict[int, int] = {}  # characters of each choice whose tokens were told
        self._calls: dict[int, int] = {}  # calls of each choice so far

    def whole(self, outcomes: Sequence[Outcome[Answered]]) -> dict[str, Any]:
        """Return the answers in one piece."""
        choices = [self._whole(index, found) for index, found in enumerate(outcomes)]
        usage = {"usage": usage_object([found.end for found in outcomes])}
        return self._object("chat.completion", choices) | usage | outcomes[0].end.recalled

    def chunk(
        self,
        text: str | None = None,
        index: int = 0,
        finish: str | None = None,
        scored: Sequence[Scored] = (),
        **delta: Any,
    ) -> dict[str, Any]:
        """Return a part of an answer, or its end."""
        delta |= {} if text is None else {"content": text}
        content = {"delta": delta} if self.chat else {"text": text or ""}
        return self._object("chat.completion.chunk", [self._choice(index, content, finish, scored)])

    def call(self, call: Call, index: int) -> dict[str, Any]:
        """Return a part of an answer that is a function's call."""
        number = self._calls.get(index, 0)
        self._calls[index] = number + 1
        return self.chunk(index=index, tool_calls=[{"index": number, **call_object(call)}])

    def progress(self, reading: Reading, index: int = 0) -> dict[str, Any]:
        """Return a chunk with llama.cpp's prompt progress, and where the pot stands beside it."""
        progress = {"total": reading.total, "cache": reading.cached, "processed": reading.processed}
        progress["time_ms"] = round(reading.seconds * 1000)
        return self.chunk(index=index) | {"prompt_progress": progress, "pot": _pot(reading.progress)}

    def queued(self, queued: Queued, index: int = 0) -> dict[str, Any]:
        """Return a chunk that says where the request stands in the queue."""
        return self.chunk(index=index) | {"queue": queue_object(queued)}

    def usage(self, ends: Sequence[Answered]) -> dict[str, Any]:
        """Return the last chunk of a stream that was asked for its usage."""
        return self.chunk() | {"choices": [], "usage": usage_object(ends)}

    def _whole(self, index: int, found: Outcome[Answered]) -> dict[str, Any]:
        calls = [call_object(call) for call in found.calls]
        message: dict[str, Any] = {"role": "assistant", "content": found.text}
        if calls:
            message |= {"content": found.text or None, "tool_calls": calls}
        content = {"message": message} if self.chat else {"text": found.text}
        return self._choice(index, content, found.end.finish, found.scored)

    def _choice(
        self, index: int, content: dict[str, Any], finish: str | None, scored: Sequence[Scored]
    ) -> dict[str, Any]:
        told = self._logprobs(scored, index) if self._scored and scored else None
        return {"index": index, **content, "logprobs": told, "finish_reason": finish}

    def _logprobs(self, scored: Sequence[Scored], index: int) -> dict[str, Any]:
        if self.chat:
            return {"content": [_scored_object(one) for one in scored], "refusal": None}
        start, offsets = self._offsets.get(index, 0), []
        for one in scored:
            offsets.append(start)
            start += len(one.text)
        self._offsets[index] = start
        return {
            "tokens": [one.text for one in scored],
            "token_logprobs": [one.logprob for one in scored],
            "top_logprobs": [dict(one.likeliest) for one in scored],
            "text_offset": offsets,
        }

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = kind if self.chat else "text_completion"
        return {"id": self._id, "object": kind, **self._about, "choices": choices}


def _scored_object(one: Scored) -> dict[str, Any]:
    def told(text: str, value: float) -> dict[str, Any]:
        whole = "\ufffd" not in text  # else a part of a character, whose bytes are not known here
        return {"token": text, "logprob": value, "bytes": list(text.encode()) if whole else None}

    return told(one.text, one.logprob) | {"top_logprobs": [told(*other) for other in one.likeliest]}
