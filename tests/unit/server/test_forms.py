"""Several answers, log probabilities, schemas and tools, over a scheduler that needs no model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fake_scheduler import PIECES, SAID, FakeScheduler
from infinipot.server.scheduler.requests import BusyError, Call, ChatRequest, Piece, RequestHandle, Scored

from .conftest import Client, data_of

PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = Call("weather", '{"city": "Oslo"}')


def asked(scheduler: FakeScheduler, index: int = -1) -> ChatRequest:
    found = scheduler.requests[index]
    assert isinstance(found, ChatRequest)
    return found


def chunks(text: str) -> list[dict[str, Any]]:
    *found, done = data_of(text)
    assert done == "[DONE]"
    return [json.loads(one) for one in found]


def test_several_answers(client: Client, scheduler: FakeScheduler) -> None:
    got = client.chat(n=3, seed=5).json()
    assert [choice["index"] for choice in got["choices"]] == [0, 1, 2]
    assert {choice["message"]["content"] for choice in got["choices"]} == {SAID}
    assert (got["usage"]["prompt_tokens"], got["usage"]["completion_tokens"]) == (8, 3 * len(PIECES))
    assert [asked(scheduler, k).options.generation.seed for k in range(3)] == [5, 6, 7]
    assert not any(asked(scheduler, k).keep for k in range(3))


def test_several_answers_in_one_stream(client: Client) -> None:
    found = chunks(client.chat(n=2, stream=True, stream_options={"include_usage": True}).text)
    for index in (0, 1):
        mine = [one["choices"][0] for one in found if one["choices"] and one["choices"][0]["index"] == index]
        assert "".join(one["delta"].get("content", "") for one in mine) == SAID
        assert [one["finish_reason"] for one in mine][-1] == "stop"
    assert found[-1]["usage"]["completion_tokens"] == 2 * len(PIECES)
    assert len([one for one in found if not one["choices"]]) == 1


def test_of_several_answers_all_or_none_are_accepted(client: Client, scheduler: FakeScheduler) -> None:
    handles: list[RequestHandle] = []
    submit = scheduler.submit

    def second_is_refused(request: Any) -> RequestHandle:
        if handles:
            raise BusyError("all slots are busy", 1)
        handles.append(submit(request))
        return handles[0]

    scheduler.submit = second_is_refused  # type: ignore[method-assign]
    assert client.chat(n=2).status_code == 429
    assert handles[0].cancelled


def test_log_probabilities(client: Client, scheduler: FakeScheduler) -> None:
    scheduler.answer = [
        Piece("He", (Scored("H", -0.5, (("H", -0.5), ("J", -1.0))), Scored("e", -0.1, (("e", -0.1),)))),
        Piece("\u00e9", (Scored("\ufffd", -2.0), Scored("\ufffd", -3.0))),
    ]
    got = client.chat(logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
    assert [one["token"] for one in got] == ["H", "e", "\ufffd", "\ufffd"]
    assert got[0] == {
        "token": "H",
        "logprob": -0.5,
        "bytes": [72],
        "top_logprobs": [
            {"token": "H", "logprob": -0.5, "bytes": [72]},
            {"token": "J", "logprob": -1.0, "bytes": [74]},
        ],
    }
    assert got[2]["bytes"] is None
    assert asked(scheduler).options.generation.logprobs == 2
    streamed = chunks(client.chat(logprobs=True, stream=True).text)
    told = [one["choices"][0]["logprobs"] for one in streamed]
    assert [part["token"] for one in told if one for part in one["content"]] == ["H", "e", "\ufffd", "\ufffd"]
    assert client.chat().json()["choices"][0]["logprobs"] is None
    old = client("POST", "/v1/completions", json={"prompt": "x", "logprobs": 2}).json()
    assert old["choices"][0]["logprobs"]["text_offset"] == [0, 1, 2, 3]
    assert old["choices"][0]["logprobs"]["top_logprobs"][0] == {"H": -0.5, "J": -1.0}


def test_a_schema_reaches_the_scheduler_as_a_grammar(client: Client, scheduler: FakeScheduler) -> None:
    for form in (FORMAT, {"type": "json_object"}):
        assert client.chat(response_format=form).status_code == 200
        assert asked(scheduler).options.generation.grammar is not None
    assert client.chat(response_format={"type": "text"}).status_code == 200
    assert asked(scheduler).options.generation.grammar is None


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "nonsense"}, "cannot be followed"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"$ref": "file:///etc/passwd"}, "cannot be followed"),
        ({"type": "string", "description": "x" * 70_000}, "65,536"),
        (None, "json_schema.schema"),
    ],
)
def test_schemas_that_cannot_be_followed_are_refused_before_anything_is_read(
    client: Client, scheduler: FakeScheduler, schema: Any, says: str
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for stream in (False, True):
        got = client.chat(response_format=form, stream=stream)
        assert (got.status_code, scheduler.requests) == (400, [])
        assert says in got.json()["error"]["message"]


def test_calls_whole_and_streamed(client: Client, scheduler: FakeScheduler) -> None:
    scheduler.answer, scheduler.finish = [Piece("See:"), CALL, Call("weather", "{}")], "tool_calls"
    choice = client.chat(tools=[WEATHER]).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "See:"
    first, second = choice["message"]["tool_calls"]
    assert first["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}
    assert first["id"] != second["id"]
    assert asked(scheduler).tools[0]["function"]["name"] == "weather"
    streamed = chunks(client.chat(tools=[WEATHER], stream=True).text)
    deltas = [one["choices"][0]["delta"] for one in streamed]
    found = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [(call["index"], call["function"]["arguments"]) for call in found] == [
        (0, '{"city": "Oslo"}'),
        (1, "{}"),
    ]
    scheduler.answer = [CALL]
    assert client.chat(tools=[WEATHER]).json()["choices"][0]["message"]["content"] is None


def test_a_call_and_its_result_go_back_to_the_model(client: Client, scheduler: FakeScheduler) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Rain"},
    ]
    assert client.chat(messages=messages, tools=[WEATHER]).status_code == 200
    said = asked(scheduler).messages
    assert [one.role for one in said] == ["user", "assistant", "tool"]
    assert said[1].content.startswith('<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}')


@pytest.mark.parametrize(
    ("choice", "parallel", "tools", "grammar", "one"),
    [
        ("auto", None, 2, False, False),
        ("none", None, 0, False, False),
        ("auto", False, 2, False, True),
        ("required", None, 2, True, False),
        ("required", False, 2, True, True),
        ({"type": "function", "function": {"name": "other"}}, None, 2, True, True),
    ],
)
def test_which_functions_may_be_called(
    client: Client,
    scheduler: FakeScheduler,
    choice: Any,
    parallel: bool | None,
    tools: int,
    grammar: bool,
    one: bool,
) -> None:
    other = {"type": "function", "function": {"name": "other"}}
    got = client.chat(tools=[WEATHER, other], tool_choice=choice, parallel_tool_calls=parallel)
    assert got.status_code == 200, got.text
    wanted = asked(scheduler)
    assert len(wanted.tools) == tools
    assert (wanted.options.generation.grammar is not None) == grammar
    assert wanted.options.one_call == one


def test_strict_functions_and_schemas_beside_tools_have_a_grammar(
    client: Client, scheduler: FakeScheduler
) -> None:
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]
    for more in ({"tools": [strict]}, {"tools": [WEATHER], "response_format": FORMAT}):
        assert client.chat(**more).status_code == 200
        assert asked(scheduler).options.generation.grammar is not None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tool_choice": "required"}, "no tools"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "not among"),
        ({"tools": [WEATHER, WEATHER]}, "one name"),
        ({"tools": [WEATHER], "pot": "book"}, "tools with a pot"),
        ({"top_logprobs": 2}, "needs logprobs"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "last message"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [{"id": "a", "function": {}}]}]}, ""),
    ],
)
def test_what_does_not_fit_together_is_one_line(client: Client, fields: dict[str, Any], says: str) -> None:
    got = client.chat(**fields)
    assert got.status_code == 400
    assert says in got.json()["error"]["message"]
