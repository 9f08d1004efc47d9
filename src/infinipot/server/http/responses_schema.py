"""What `POST /v1/responses` may say: OpenAI's newer words for a conversation, as chat has them. No HTTP."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field
from pydantic import Tag as Tagged

from infinipot.errors import InputError
from infinipot.server.http.body import Body, Catalyst, Name, Text, Whole
from infinipot.server.http.formats import Function, JsonSchema, Offer, ResponseFormat, Schema, offer
from infinipot.server.http.schema import MOST_TOOLS, AnswerBody, StreamOptions
from infinipot.server.scheduler.requests import Call, ChatRequest, Message
from infinipot.server.scheduler.tool_calls import as_text


class InputText(Body):
    """Text as a part of an item."""

    type: Literal["input_text", "output_text", "text"]
    text: Text


Parts = Text | Annotated[list[InputText], Field(min_length=1)]


class InputMessage(Body):
    """A message; an earlier answer has an id and a status, which say nothing here."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Parts
    id: Name | None = None
    status: Name | None = None


class InputCall(Body):
    """A function that an earlier answer called."""

    type: Literal["function_call"]
    call_id: Name
    name: Name
    arguments: Text
    id: Name | None = None
    status: Name | None = None


class CallOutput(Body):
    """What a function that was called returned."""

    type: Literal["function_call_output"]
    call_id: Name
    output: Parts
    id: Name | None = None
    status: Name | None = None


def _kind(item: Any) -> str:
    found = item.get("type", "message") if isinstance(item, dict) else getattr(item, "type", "message")
    return found if isinstance(found, str) else ""


Item = Annotated[
    Annotated[InputMessage, Tagged("message")]
    | Annotated[InputCall, Tagged("function_call")]
    | Annotated[CallOutput, Tagged("function_call_output")],
    Discriminator(_kind),
]


class TextFormat(JsonSchema):
    """What the answer must look like; here a schema stands beside its type."""

    type: Literal["text", "json_object", "json_schema"]

    def schema_wanted(self) -> Schema | None:
        """Return the JSON schema that the answer must follow; None where any text will do."""
        if self.type == "json_schema" and self.schema_ is None:
            raise InputError("text.format has no schema: give one")
        return ResponseFormat(type=self.type, json_schema=self).schema_wanted()


class TextOptions(Body):
    """How the text of an answer is wanted."""

    format: TextFormat | None = None


class FlatTool(Function):
    """A function; here its name stands beside its type."""

    type: Literal["function"]


class FlatChoice(Body):
    """The one function to call."""

    type: Literal["function"]
    name: Name


class ResponsesBody(Body):
    """`POST /v1/responses`."""

    model: Name | None = None
    input: Text | Annotated[list[Item], Field(min_length=1, max_length=4096)]
    instructions: Text | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_output_tokens: Whole | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    text: TextOptions | None = None
    tools: Annotated[list[FlatTool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | FlatChoice | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[Text, Text] | None = None
    pot: Name | None = Field(None, description="Name of a kept pot the question is about.")
    keep: bool = Field(True, description="Keep the conversation's pot, so that the next turn is quick.")
    catalyst: Catalyst = Field("question", description="question, general, or a text of your own.")

    def request(self, tenant: str, most: int) -> ChatRequest:
        """Return the scheduler's request."""
        messages = self._messages()
        if messages[-1].role not in ("user", "tool"):
            raise InputError("the last item of input must be the user's message, or a function's output")
        if self.tools and self.pot is not None:
            raise InputError("tools with a pot are not served here: leave out one of them")
        told = {"temperature": self.temperature, "top_p": self.top_p, "catalyst": self.catalyst}
        told["max_tokens"], offered = self.max_output_tokens, self._offer()
        try:
            (options,) = AnswerBody.model_validate(told).wanted(most, offered)
        except InputError as error:
            raise InputError(str(error).replace("max_tokens", "max_output_tokens")) from error
        return ChatRequest(tenant, messages, options, self.pot, self.keep, offered.tools)

    def _offer(self) -> Offer:
        named, choice = self.tool_choice, "auto"
        if named is not None:
            choice = named.name if isinstance(named, FlatChoice) else named
        form = self.text.format if self.text is not None else None
        schema = None if form is None else form.schema_wanted()
        return offer(self.tools or (), choice, self.parallel_tool_calls, schema)

    def _messages(self) -> list[Message]:
        """Return the conversation; calls that follow each other are one answer's."""
        found = [] if self.instructions is None else [Message("system", self.instructions)]
        if isinstance(self.input, str):
            return [*found, Message("user", self.input)]
        for item in self.input:
            if isinstance(item, InputMessage):
                role = "system" if item.role == "developer" else item.role
                found.append(Message(role, _text(item.content)))
            elif isinstance(item, CallOutput):
                found.append(Message("tool", _text(item.output)))
            else:
                before = found.pop().content if found and found[-1].role == "assistant" else ""
                found.append(Message("assistant", as_text(before, [Call(item.name, item.arguments)])))
        return found


def _text(parts: Parts) -> str:
    return parts if isinstance(parts, str) else "\n".join(part.text for part in parts)
