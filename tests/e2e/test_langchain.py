"""LangChain's own client against a real server with a toy model: tools, schemas, streams.

The toy's weights are random: `required` makes it call, and a grammar makes the call right. What is tested is
that both sides mean the same by their messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

from toy_server import running

STRICT = {"parallel_tool_calls": False, "strict": True}  # nothing beside the schema: random weights never end
ASKED = HumanMessage("What is the weather in Oslo?")


@tool
def weather(city: Literal["Oslo", "Rome"]) -> str:
    """Tell the weather of a city."""
    return f"Rain in {city}, 7 degrees."


class Person(BaseModel):
    """Somebody."""

    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=99)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("server")
    with running(folder, slots=2) as server:
        yield f"{server.url}/v1"


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def model(url: str, request: pytest.FixtureRequest) -> ChatOpenAI:
    about: dict[str, Any] = {"base_url": url, "api_key": "none", "max_retries": 0, "timeout": 60}
    about["stream_usage"] = True
    return ChatOpenAI(model="toy", max_tokens=200, temperature=1, use_responses_api=request.param, **about)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_s_round_trip(model: ChatOpenAI, streamed: bool) -> None:
    calling = model.bind_tools([weather], tool_choice="required", **STRICT)
    if streamed:
        chunks = list(calling.stream([ASKED]))
        called = chunks[0]
        for chunk in chunks[1:]:
            called = called + chunk  # type: ignore[assignment]
    else:
        called = calling.invoke([ASKED])  # type: ignore[assignment]
    (call,) = called.tool_calls
    assert (call["name"], call["args"]["city"] in ("Oslo", "Rome")) == ("weather", True)
    result = weather.invoke(call)
    assert isinstance(result, ToolMessage)
    assert result.content == f"Rain in {call['args']['city']}, 7 degrees."
    last = model.bind_tools([weather]).invoke([ASKED, called, result], max_tokens=20)
    assert last.usage_metadata["input_tokens"] > called.usage_metadata["input_tokens"]  # type: ignore[index]


def test_an_answer_of_a_schema(model: ChatOpenAI) -> None:
    telling = model.with_structured_output(Person, method="json_schema", strict=True)
    person = telling.invoke("Who keeps the light?")
    assert isinstance(person, Person)
    calling = model.with_structured_output(Person, method="function_calling", strict=True)
    assert isinstance(calling.invoke("Who keeps the light?"), Person)


def test_a_stream_is_the_same_answer(model: ChatOpenAI) -> None:
    whole = model.invoke("Hello", max_tokens=12, temperature=0)
    parts = model.stream("Hello", max_tokens=12, temperature=0)
    assert "".join(part.text for part in parts) == whole.text
