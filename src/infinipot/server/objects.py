"""What answers look like: OpenAI's objects, llama.cpp's progress, and pots. Shapes only, no HTTP."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from infinipot.server.orders import Answered, Reading, Usage
from infinipot.store import Card


def model_object(name: str, created: int) -> dict[str, Any]:
    """Return the served model."""
    return {"id": name, "object": "model", "created": created, "owned_by": "infinipot"}


def pot_object(name: str, card: Card) -> dict[str, Any]:
    """Return a kept pot."""
    same = ("title", "model", "created", "updated", "tokens_read", "cycles", "fill", "capacity", "bytes")
    told = {key: getattr(card, key) for key in same}
    return {
        "id": name,
        "object": "pot",
        **told,
        "source_bytes": card.source_bytes,
        "recipe": dict(card.recipe),
    }


def usage_object(usage: Usage) -> dict[str, Any]:
    """Return true counts: what was known before is part of the prompt, and said to be."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def progress_object(reading: Reading) -> dict[str, Any]:
    """Return llama.cpp's prompt progress, with where the pot stands beside it."""
    step = reading.progress
    return {
        "prompt_progress": {
            "total": reading.total if reading.total is not None else reading.processed + step.waiting,
            "cache": reading.cached,
            "processed": reading.processed,
            "time_ms": round(reading.seconds * 1000),
        },
        "pot": {"fill": step.fill, "capacity": step.capacity, "cycles": step.cycles},
    }


def reading_object(reading: Reading, bytes_total: int) -> dict[str, Any]:
    """Return how far the reading of a file is."""
    step = reading.progress
    return {
        "tokens_read": step.tokens_read,
        "cycles": step.cycles,
        "fill": step.fill,
        "capacity": step.capacity,
        "seconds": round(step.seconds, 3),
        "bytes_read": min(bytes_total, reading.bytes),
        "bytes_total": bytes_total,
    }


@dataclass(frozen=True)
class Answer:
    """One answer's objects, whole or in chunks; `chat` chooses between OpenAI's two families."""

    model: str
    chat: bool
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        start = "chatcmpl" if self.chat else "cmpl"
        object.__setattr__(self, "id", self.id or f"{start}-{secrets.token_hex(12)}")

    def whole(self, text: str, end: Answered) -> dict[str, Any]:
        """Return the answer in one piece."""
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return {
            **self._head("chat.completion" if self.chat else "text_completion"),
            "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": end.finish}],
            "usage": usage_object(end.usage),
        }

    def chunk(
        self, text: str | None = None, first: bool = False, finish: str | None = None
    ) -> dict[str, Any]:
        """Return a part of the answer, its beginning, or its end."""
        if self.chat:
            delta = ({"role": "assistant"} if first else {}) | ({} if text is None else {"content": text})
            said: dict[str, Any] = {"delta": delta}
        else:
            said = {"text": text or ""}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish}
        return {
            **self._head("chat.completion.chunk" if self.chat else "text_completion"),
            "choices": [choice],
        }

    def progress(self, reading: Reading) -> dict[str, Any]:
        """Return a chunk that says how far reading is."""
        return {**self.chunk(), **progress_object(reading)}

    def usage(self, usage: Usage) -> dict[str, Any]:
        """Return the last chunk of a stream that was asked for its usage."""
        head = self._head("chat.completion.chunk" if self.chat else "text_completion")
        return {**head, "choices": [], "usage": usage_object(usage)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}
