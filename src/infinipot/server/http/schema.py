"""What requests may say, in OpenAI's words and a few of ours, and what answers look like. No HTTP."""

import secrets
import time
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from infinipot.errors import InputError
from infinipot.reading.progress import Progress
from infinipot.reading.sampling import Generation
from infinipot.server.scheduler.requests import Answered, AnswerOptions, Message, Reading
from infinipot.store import Card

USUAL_TOKENS = 1024  # of an answer, where the request does not say

# Fields that say something about the request, not about the answer.
HARMLESS = frozenset(("user", "metadata", "store", "service_tier", "parallel_tool_calls", "name", "refusal"))
HARMLESS |= {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "annotations"}
HARMLESS |= {"include_obfuscation"}
# Values of fields we do not serve that ask for nothing.
NOTHING: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("tools", "functions", "tool_calls"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), (0, 0.0)),
    **dict.fromkeys(("logprobs", "echo"), (False,)),
    "top_logprobs": (0,),
    "best_of": (1,),
    "logit_bias": ({},),
    "suffix": ("",),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
}


def _characters(text: str) -> str:
    """Refuse half of a character, which JSON can carry and no tokenizer can read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it has half of a character (a lone surrogate)") from None
    return text


Characters = AfterValidator(_characters)
Text = Annotated[str, Characters]
Stop = Annotated[str, Field(min_length=1, max_length=256), Characters]
Name = Annotated[str, Field(max_length=512), Characters]
Catalyst = Annotated[str, Field(min_length=1, max_length=4096), Characters]
Whole = Annotated[int, Field(ge=1, strict=True)]


class Body(BaseModel):
    """A part of a request; a field that would change the answer and is not served is refused by its name."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    @model_validator(mode="after")
    def _nothing_unserved(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            plain = NOTHING.get(name, ())
            asks_nothing = value is None or any(value == p and type(value) is type(p) for p in plain)
            if name not in HARMLESS and not asks_nothing:
                raise ValueError(f"'{name[:64]}' is not served here: leave it out")
        return self


class TextPart(Body):
    """Text as a part of a message."""

    type: Literal["text"]
    text: Text


class ChatMessage(Body):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(min_length=1)]

    def plain(self) -> Message:
        """Return the message as the scheduler knows it."""
        parts = [self.content] if isinstance(self.content, str) else [part.text for part in self.content]
        return Message("system" if self.role == "developer" else self.role, "\n".join(parts))


class StreamOptions(Body):
    """What a stream says beside the answer."""

    include_usage: bool = False


class AnswerBody(Body):
    """What chat and completions have in common."""

    model: Name | None = Field(None, description="The one model that is served.")
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Whole | None = None
    temperature: float | None = Field(None, ge=0, le=2, description="0, the default: the likeliest token.")
    top_p: float | None = Field(None, gt=0, le=1)
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63, strict=True)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    n: Annotated[int, Field(ge=1, le=1, strict=True)] | None = None
    catalyst: Catalyst = Field("question", description="question, general, or a text of your own.")
    return_progress: bool = Field(False, description="Say in a stream how far reading is.")

    def options(self, most: int) -> AnswerOptions:
        """Return how the answer is wanted; `most` is the server's bound on its tokens."""
        wanted = self.max_tokens
        if wanted is not None and wanted > most:
            raise InputError(f"max_tokens is {wanted}; this server gives at most {most}")
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        generation = Generation(
            max_new_tokens=wanted or min(USUAL_TOKENS, most),
            temperature=self.temperature or 0.0,
            seed=None if self.seed is None else self.seed % 2**63,
            top_p=1.0 if self.top_p is None else self.top_p,
        )
        return AnswerOptions(generation, stops, self.catalyst)


class ChatBody(AnswerBody):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=4096)]
    max_completion_tokens: Whole | None = None
    pot: Name | None = Field(None, description="Name of a kept pot the question is about.")
    keep: bool = Field(True, description="Keep the conversation's pot, so that the next turn is quick.")

    @model_validator(mode="after")
    def _ends_with_the_user(self) -> Self:
        if self.messages[-1].role != "user":
            raise ValueError("the last message must be the user's")
        if self.max_completion_tokens is not None:  # the new word for it
            self.max_tokens = self.max_completion_tokens
        return self


class CompletionBody(AnswerBody):
    """`POST /v1/completions`."""

    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=1)]


# What answers look like: OpenAI's objects, llama.cpp's progress, and pots.
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


def _pot(step: Progress) -> dict[str, int | None]:
    return {"fill": step.fill, "capacity": step.capacity, "cycles": step.cycles}


def usage_object(usage: Answered) -> dict[str, Any]:
    """Return true counts: what was known before is part of the prompt, and said to be."""
    counts = {"prompt_tokens": usage.prompt, "completion_tokens": usage.completion}
    details = {"prompt_tokens_details": {"cached_tokens": usage.cached}}
    return {**counts, "total_tokens": sum(counts.values()), **details}


class Answer:
    """One answer's objects, whole or in chunks; `chat` chooses between OpenAI's two families."""

    def __init__(self, model: str, chat: bool) -> None:
        self.chat = chat
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._about = {"created": int(time.time()), "model": model}

    def whole(self, text: str, end: Answered) -> dict[str, Any]:
        """Return the answer in one piece."""
        content = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        usage = {"usage": usage_object(end)}
        return self._object("chat.completion", content, end.finish) | usage | end.recalled

    def chunk(self, text: str | None = None, finish: str | None = None, **delta: str) -> dict[str, Any]:
        """Return a part of the answer, or its end."""
        delta |= {} if text is None else {"content": text}
        content = {"delta": delta} if self.chat else {"text": text or ""}
        return self._object("chat.completion.chunk", content, finish)

    def progress(self, reading: Reading) -> dict[str, Any]:
        """Return a chunk with llama.cpp's prompt progress, and where the pot stands beside it."""
        progress = {"total": reading.total, "cache": reading.cached, "processed": reading.processed}
        progress["time_ms"] = round(reading.seconds * 1000)
        return self.chunk() | {"prompt_progress": progress, "pot": _pot(reading.progress)}

    def usage(self, usage: Answered) -> dict[str, Any]:
        """Return the last chunk of a stream that was asked for its usage."""
        return self.chunk() | {"choices": [], "usage": usage_object(usage)}

    def _object(self, kind: str, content: dict[str, Any], finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish}
        kind = kind if self.chat else "text_completion"
        return {"id": self._id, "object": kind, **self._about, "choices": [choice]}
