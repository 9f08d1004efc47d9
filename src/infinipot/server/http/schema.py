"""What chat and completions may say, in OpenAI's words and a few of ours. No HTTP."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from infinipot.errors import InputError
from infinipot.reading.sampling import Generation
from infinipot.server.http.body import Body, Catalyst, Name, Stop, Text, Whole
from infinipot.server.http.formats import ANY_TEXT, Offer, ResponseFormat, Tool, ToolChoice, offer
from infinipot.server.scheduler.requests import AnswerOptions, Call, ChatRequest, Message
from infinipot.server.scheduler.tool_calls import as_text

USUAL_TOKENS = 1024  # of an answer, where the request does not say
MOST_CHOICES = 16
MOST_TOOLS = 128


class TextPart(Body):
    """Text as a part of a message."""

    type: Literal["text"]
    text: Text


class CalledFunction(Body):
    """The function of a call, and what it was given."""

    name: Name
    arguments: Text


class ToolCall(Body):
    """A call that an earlier answer had."""

    id: Name
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Body):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[TextPart], Field(min_length=1)] | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MOST_TOOLS)] | None = None
    tool_call_id: Name | None = Field(None, description="Of a tool's message: the call it answers.")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise ValueError("only an assistant's message has tool_calls")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("a tool's message needs its tool_call_id")
        if self.content is None and not self.tool_calls:
            raise ValueError("the message has no content")
        return self

    def plain(self) -> Message:
        """Return the message as the scheduler knows it."""
        content = self.content or ""
        text = content if isinstance(content, str) else "\n".join(part.text for part in content)
        calls = [Call(one.function.name, one.function.arguments) for one in self.tool_calls or ()]
        role = "system" if self.role == "developer" else self.role
        return Message(role, as_text(text, calls) if calls else text)


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
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES, strict=True)] | None = None
    catalyst: Catalyst = Field("question", description="question, general, or a text of your own.")
    return_progress: bool = Field(False, description="Say in a stream how far reading is.")

    def scores(self) -> int | None:
        """Return how many likeliest tokens are told beside each token; None where not even its own score."""
        return None

    def wanted(self, most: int, offered: Offer = ANY_TEXT) -> list[AnswerOptions]:
        """Return how each answer is wanted; `most` is the server's bound on its tokens."""
        wanted = self.max_tokens
        if wanted is not None and wanted > most:
            raise InputError(f"max_tokens is {wanted}; this server gives at most {most}")
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

        def options(index: int) -> AnswerOptions:
            generation = Generation(
                max_new_tokens=wanted or min(USUAL_TOKENS, most),
                temperature=self.temperature or 0.0,
                seed=None if self.seed is None else (self.seed + index) % 2**63,
                top_p=1.0 if self.top_p is None else self.top_p,
                grammar=offered.grammar,
                logprobs=self.scores(),
            )
            return AnswerOptions(generation, stops, self.catalyst, offered.one_call)

        return [options(index) for index in range(self.n or 1)]


class ChatBody(AnswerBody):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=4096)]
    max_completion_tokens: Whole | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20, strict=True)] | None = None
    pot: Name | None = Field(None, description="Name of a kept pot the question is about.")
    keep: bool = Field(True, description="Keep the conversation's pot, so that the next turn is quick.")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.messages[-1].role not in ("user", "tool"):
            raise ValueError("the last message must be the user's, or a tool's")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs")
        if self.tools and self.pot is not None:
            raise ValueError("tools with a pot are not served here: leave out one of them")
        if self.max_completion_tokens is not None:  # the new word for it
            self.max_tokens = self.max_completion_tokens
        return self

    def scores(self) -> int | None:
        """Return how many likeliest tokens are told beside each token."""
        return (self.top_logprobs or 0) if self.logprobs else None

    def requests(self, tenant: str, most: int) -> list[ChatRequest]:
        """Return the scheduler's requests, one for each answer."""
        named, choice = self.tool_choice, "auto"
        if named is not None:
            choice = named.function.name if isinstance(named, ToolChoice) else named
        functions = (tool.function for tool in self.tools or ())
        schema = None if self.response_format is None else self.response_format.schema_wanted()
        offered = offer(functions, choice, self.parallel_tool_calls, schema)
        messages = [message.plain() for message in self.messages]
        every = self.wanted(most, offered)
        keep = self.keep and len(every) == 1  # which of several the next turn goes on from is not known
        return [ChatRequest(tenant, messages, one, self.pot, keep, offered.tools) for one in every]


class CompletionBody(AnswerBody):
    """`POST /v1/completions`."""

    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=1)]
    logprobs: Annotated[int, Field(ge=0, le=5, strict=True)] | None = None

    def scores(self) -> int | None:
        """Return how many likeliest tokens are told beside each token."""
        return self.logprobs
