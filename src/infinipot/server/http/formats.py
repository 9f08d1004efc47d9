"""The form an answer must have, and the functions it may call: what a request says of them, as a grammar."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from infinipot.errors import InputError
from infinipot.reading.grammar import Grammar
from infinipot.server.http.body import Body, Characters, Name, Text
from infinipot.server.scheduler.tool_calls import forced, free_or_called
from infinipot.text.tokenizer import Tools

Schema = Annotated[dict[str, Any], Characters]
FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class JsonSchema(Body):
    """A JSON schema with a name."""

    name: Name = ""
    description: Text | None = None
    schema_: Schema | None = Field(None, alias="schema")
    strict: bool | None = None  # a schema is always followed


class ResponseFormat(Body):
    """What an answer must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def schema_wanted(self) -> Schema | None:
        """Return the JSON schema that the answer must follow; None where any text will do."""
        if self.type == "json_schema":
            if self.json_schema is None or self.json_schema.schema_ is None:
                raise InputError("response_format has no json_schema.schema: give one")
            return self.json_schema.schema_
        return {"type": "object"} if self.type == "json_object" else None


class Function(Body):
    """A function the model may call."""

    name: FunctionName
    description: Text | None = None
    parameters: Schema | None = None
    strict: bool | None = None

    def told(self) -> dict[str, Any]:
        """Return what the model is told."""
        about = self.model_dump(exclude_none=True, exclude={"strict", "type"})
        return {"type": "function", "function": {"name": self.name, "description": "", **about}}


class Tool(Body):
    """A function as chat has it."""

    type: Literal["function"]
    function: Function


class FunctionChoice(Body):
    """The name of a function."""

    name: FunctionName


class ToolChoice(Body):
    """The one function to call."""

    type: Literal["function"]
    function: FunctionChoice


@dataclass(frozen=True)
class Offer:
    """What an answer may be: functions it may call, the grammar it follows, and whether one call ends it."""

    tools: Tools = ()
    grammar: Grammar | None = None
    one_call: bool = False


ANY_TEXT = Offer()


def offer(
    functions: Iterable[Function], choice: str, parallel: bool | None, schema: Schema | None = None
) -> Offer:
    """Return what an answer may be; `choice` is none, auto, required, or the name of one of the functions."""
    known = list(functions)
    tools, names = [one.told() for one in known], [one.name for one in known]
    strict = any(one.strict for one in known)
    if len({*names}) < len(names):
        raise InputError("two tools have one name: name each otherwise")
    one, offered = parallel is False, () if choice == "none" else tools
    if choice not in ("none", "auto", "required", *names):
        raise InputError("tool_choice names a function that is not among the tools")
    if choice == "required" and not tools:
        raise InputError("tool_choice is required, and there are no tools")
    if choice in names:
        return Offer(tools, forced([tools[names.index(choice)]], False), one_call=True)
    if choice == "required":
        return Offer(offered, forced(offered, not one), one)
    if schema is not None:
        return Offer(offered, forced(offered, not one, schema) if offered else Grammar.json(schema), one)
    return Offer(offered, free_or_called(offered) if offered and strict else None, one)
