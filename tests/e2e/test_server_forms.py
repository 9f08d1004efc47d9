"""Schemas, tools, several answers and scores, asked for by the real `openai` client, with a toy model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import openai
import pytest

from toy_server import Running, running

HI = [{"role": "user", "content": "Hello"}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("server"), slots=4) as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as found:
        yield found


def ask(client: Any, **more: Any) -> Any:
    return client.chat.completions.create(
        **{"model": "toy", "messages": HI, "max_tokens": 200, "extra_body": {"keep": False}, **more}
    )


def test_answers_of_a_schema_beside_free_ones(client: Any) -> None:
    """Eight at once in four slots: those of a schema follow it, the others are what they are alone."""
    alone = ask(client, max_tokens=40).choices[0].message.content

    def one(index: int) -> Any:
        if index % 2:
            return ask(client, max_tokens=40)
        return ask(client, response_format=FORMAT, temperature=1.0, seed=index)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, range(8)))
    for index, answer in enumerate(found):
        if index % 2:
            assert answer.choices[0].message.content == alone
        else:
            assert answer.choices[0].finish_reason == "stop"
            jsonschema.validate(json.loads(answer.choices[0].message.content), PERSON)


def test_the_client_s_own_parsing(client: Any) -> None:
    import pydantic

    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        age: int = pydantic.Field(le=99)

    got = client.chat.completions.parse(
        model="toy", messages=HI, response_format=Person, max_tokens=200, temperature=1.0, seed=3
    )
    assert isinstance(got.choices[0].message.parsed, Person)


def test_a_streamed_schema(client: Any) -> None:
    stream = ask(client, response_format={"type": "json_object"}, stream=True, temperature=1, seed=4)
    parts = [chunk.choices[0] for chunk in stream if chunk.choices]
    text = "".join(part.delta.content or "" for part in parts)
    assert text.startswith("{")
    if parts[-1].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_s_round_trip(client: Any, streamed: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    once = {"tool_choice": "required", "parallel_tool_calls": streamed}  # whole, it must end
    first = ask(client, messages=messages, tools=[WEATHER], stream=streamed, **once)
    if streamed:
        calls = [c for chunk in first if chunk.choices for c in chunk.choices[0].delta.tool_calls or ()]
    else:
        assert first.choices[0].finish_reason == "tool_calls"
        calls = first.choices[0].message.tool_calls
    assert calls
    for call in calls:
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
    told = [
        {
            "id": c.id,
            "type": "function",
            "function": {"name": c.function.name, "arguments": c.function.arguments},
        }
        for c in calls
    ]
    messages.append({"role": "assistant", "content": None, "tool_calls": told})
    messages += [{"role": "tool", "tool_call_id": c.id, "content": "Rain, 7 degrees."} for c in calls]
    last = ask(client, messages=messages, tools=[WEATHER], max_tokens=8)
    assert last.usage.completion_tokens <= 8
    assert last.usage.prompt_tokens > first.usage.prompt_tokens if not streamed else True


def test_one_function_once(client: Any) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    got = ask(client, tools=[WEATHER], tool_choice=choice, temperature=1, seed=2)
    assert [call.function.name for call in got.choices[0].message.tool_calls] == ["weather"]
    strict = ask(client, tools=[WEATHER], temperature=1, seed=2, max_tokens=30)
    assert strict.choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_a_conversation_with_calls_goes_on_in_its_pot(client: Any) -> None:
    more = {"tools": [WEATHER], "extra_body": {"keep": True}, "tool_choice": "required"}
    more |= {"parallel_tool_calls": False}
    first = ask(client, messages=[{"role": "user", "content": "Weather please"}], **more)
    (call,) = calls = first.choices[0].message.tool_calls
    told = [call.model_dump() for call in calls]
    messages = [
        {"role": "user", "content": "Weather please"},
        {"role": "assistant", "content": first.choices[0].message.content, "tool_calls": told},
        *({"role": "tool", "tool_call_id": call.id, "content": "Rain"} for call in calls),
    ]
    second = ask(client, messages=messages, tools=[WEATHER], max_tokens=4)
    assert call.id
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens


def test_several_answers_with_seeds(client: Any) -> None:
    got = ask(client, n=3, temperature=1.0, seed=11, max_tokens=20)
    said = [choice.message.content for choice in got.choices]
    assert len({*said}) > 1
    again = ask(client, n=3, temperature=1.0, seed=11, max_tokens=20)
    assert [choice.message.content for choice in again.choices] == said
    lone = ask(client, temperature=1.0, seed=12, max_tokens=20)
    assert lone.choices[0].message.content == said[1]


def test_log_probabilities(client: Any) -> None:
    got = ask(client, logprobs=True, top_logprobs=3, max_tokens=10).choices[0]
    assert len(got.logprobs.content) <= 10
    assert all(len(one.top_logprobs) == 3 for one in got.logprobs.content)
    assert all(one.logprob == one.top_logprobs[0].logprob for one in got.logprobs.content)  # greedy
    old = client.completions.create(model="toy", prompt="Once", max_tokens=5, logprobs=2)
    assert len(old.choices[0].logprobs.tokens) == old.usage.completion_tokens


def test_a_schema_that_cannot_be_followed_is_one_line(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="uniqueItems"):
        ask(
            client,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "array", "uniqueItems": True}},
            },
        )


def test_responses_as_the_client_asks_by_default(client: Any) -> None:
    got = client.responses.create(model="toy", input="Hello", max_output_tokens=12)
    chat = ask(client, max_tokens=12)
    assert got.output_text == chat.choices[0].message.content
    assert got.usage.output_tokens == chat.usage.completion_tokens
    events = list(client.responses.create(model="toy", input="Hello", max_output_tokens=12, stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert events[-1].response.output_text == got.output_text
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == got.output_text
    form = {"type": "json_schema", "name": "p", "schema": {"enum": ["yes", "no"]}}
    with client.responses.stream(
        model="toy", input="Hello", text={"format": form}, max_output_tokens=50
    ) as stream:
        assert [event.type for event in stream][-1] == "response.completed"
        assert json.loads(stream.get_final_response().output_text) in ("yes", "no")


def test_responses_with_a_tool_and_a_schema(client: Any) -> None:
    tool = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item]
    history: list[Any] = [{"role": "user", "content": "Weather?"}]
    first = client.responses.create(
        model="toy",
        input=history,
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=200,
    )
    (call,) = first.output
    assert json.loads(call.arguments)["city"] in ("Oslo", "Rome")
    history += [call, {"type": "function_call_output", "call_id": call.call_id, "output": "Rain"}]
    second = client.responses.create(model="toy", input=history, tools=[tool], max_output_tokens=4)
    assert second.status in ("completed", "incomplete")
    form = {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}
    told = client.responses.create(
        model="toy", input="Who?", text={"format": form}, max_output_tokens=200, temperature=1
    )
    jsonschema.validate(json.loads(told.output_text), PERSON)
