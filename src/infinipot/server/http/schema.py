"""What requests may say, in OpenAI's words and a few of ours; checked before anything is done.

A field that would change the answer and is not served is refused by its name, never dropped in silence.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from infinipot.errors import InputError
from infinipot.reading.sampling import Generation
from infinipot.server.scheduler.requests import AnswerOptions, Message

MOST_MESSAGES = 4096
MOST_STOPS, MOST_STOP = 4, 256
USUAL_TOKENS = 1024  # of an answer, where the request does not say

# Fields that say something about the request, not about the answer.
HARMLESS = frozenset(("user", "metadata", "store", "service_tier", "parallel_tool_calls", "name", "refusal"))
HARMLESS |= {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "annotations"}
HARMLESS |= {"include_obfuscation"}
# Values of fields we do not serve that ask for nothing.
NOTHING: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "tool_calls": ([],),
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
Stop = Annotated[str, Field(min_length=1, max_length=MOST_STOP), Characters]
Name = Annotated[str, Field(max_length=512), Characters]
Catalyst = Annotated[str, Field(min_length=1, max_length=4096), Characters]
Whole = Annotated[int, Field(ge=1, strict=True)]


class Body(BaseModel):
    """A part of a request: unknown fields are looked at, not ignored."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    @model_validator(mode="after")
    def _nothing_unserved(self) -> Body:
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
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    n: Annotated[int, Field(ge=1, le=1, strict=True)] | None = None
    catalyst: Catalyst = Field("question", description="question, general, or a text of your own.")
    return_progress: bool = Field(False, description="Say in a stream how far reading is.")

    @property
    def longest(self) -> int | None:
        """Return the most tokens asked for."""
        return self.max_tokens

    def options(self, most: int) -> AnswerOptions:
        """Return how the answer is wanted; `most` is the server's bound on its tokens."""
        wanted = self.longest
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

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: Whole | None = None
    pot: Name | None = Field(None, description="Name of a kept pot the question is about.")
    keep: bool = Field(True, description="Keep the conversation's pot, so that the next turn is quick.")

    @property
    def longest(self) -> int | None:
        """Return the most tokens asked for, in the new word or the old."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @model_validator(mode="after")
    def _ends_with_the_user(self) -> ChatBody:
        if self.messages[-1].role != "user":
            raise ValueError("the last message must be the user's")
        return self


class CompletionBody(AnswerBody):
    """`POST /v1/completions`."""

    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=1)]

    @property
    def text(self) -> str:
        """Return the prompt."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]
