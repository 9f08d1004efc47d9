"""What answers look like: OpenAI's objects, llama.cpp's progress, and pots. Shapes only, no HTTP."""

from __future__ import annotations

import secrets
import time
from typing import Any

from infinipot.server.scheduler.requests import Answered, Reading, Usage
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


def usage_object(usage: Usage) -> dict[str, Any]:
    """Return true counts: what was known before is part of the prompt, and said to be."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


class Answer:
    """One answer's objects, whole or in chunks; `chat` chooses between OpenAI's two families."""

    def __init__(self, model: str, chat: bool) -> None:
        self.chat = chat
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._about = {"created": int(time.time()), "model": model}

    def whole(self, text: str, end: Answered) -> dict[str, Any]:
        """Return the answer in one piece."""
        content = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return self._object("chat.completion", content, end.finish) | {"usage": usage_object(end.usage)}

    def chunk(self, text: str | None = None, finish: str | None = None, **delta: str) -> dict[str, Any]:
        """Return a part of the answer, or its end."""
        delta |= {} if text is None else {"content": text}
        content = {"delta": delta} if self.chat else {"text": text or ""}
        return self._object("chat.completion.chunk", content, finish)

    def progress(self, reading: Reading) -> dict[str, Any]:
        """Return a chunk with llama.cpp's prompt progress, and where the pot stands beside it."""
        step = reading.progress
        progress = {"total": reading.total, "cache": reading.cached, "processed": reading.processed}
        return self.chunk() | {
            "prompt_progress": {**progress, "time_ms": round(reading.seconds * 1000)},
            "pot": {"fill": step.fill, "capacity": step.capacity, "cycles": step.cycles},
        }

    def usage(self, usage: Usage) -> dict[str, Any]:
        """Return the last chunk of a stream that was asked for its usage."""
        return self.chunk() | {"choices": [], "usage": usage_object(usage)}

    def _object(self, kind: str, content: dict[str, Any], finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish}
        kind = kind if self.chat else "text_completion"
        return {"id": self._id, "object": kind, **self._about, "choices": [choice]}
