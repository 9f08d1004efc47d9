"""`/v1/responses` over a scheduler that needs no model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fake_scheduler import SAID, FakeScheduler
from infinipot.server.scheduler.requests import Call, ChatRequest, Piece

from .conftest import Client, data_of

TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


def post(client: Client, **body: Any) -> Any:
    return client("POST", "/v1/responses", json={"model": "toy", "input": "Hi", **body})


def asked(scheduler: FakeScheduler) -> ChatRequest:
    found = scheduler.requests[-1]
    assert isinstance(found, ChatRequest)
    return found


def test_a_whole_response(client: Client, scheduler: FakeScheduler) -> None:
    got = post(client, instructions="Be brief.", max_output_tokens=9, metadata={"a": "b"}, store=True).json()
    assert (got["object"], got["status"], got["store"]) == ("response", "completed", False)
    (message,) = got["output"]
    assert (message["type"], message["role"], message["status"]) == ("message", "assistant", "completed")
    assert message["content"][0]["text"] == SAID
    assert got["usage"]["input_tokens"] == 8
    assert got["usage"]["input_tokens_details"] == {"cached_tokens": 2}
    assert [(one.role, one.content) for one in asked(scheduler).messages] == [
        ("system", "Be brief."),
        ("user", "Hi"),
    ]
    assert asked(scheduler).options.generation.max_new_tokens == 9


def test_a_stream_s_events_are_those_of_openai(client: Client) -> None:
    text = post(client, stream=True).text
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    events = [json.loads(one) for one in data_of(text)]
    assert [event["type"] for event in events] == names
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert names[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert names[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert "".join(event["delta"] for event in events if event["type"].endswith("text.delta")) == SAID
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == SAID
    assert events[0]["response"]["status"] == "in_progress"


def test_calls(client: Client, scheduler: FakeScheduler) -> None:
    scheduler.answer, scheduler.finish = [Piece("See:"), Call("weather", '{"city": "Oslo"}')], "tool_calls"
    message, call = post(client, tools=[TOOL]).json()["output"]
    assert message["content"][0]["text"] == "See:"
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "weather", '{"city": "Oslo"}')
    events = [json.loads(one) for one in data_of(post(client, tools=[TOOL], stream=True).text)]
    kinds = [event["type"] for event in events]
    assert kinds.index("response.output_text.done") < kinds.index("response.function_call_arguments.delta")
    assert [e["output_index"] for e in events if e["type"] == "response.output_item.done"] == [0, 1]
    history = [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {k: call[k] for k in ("type", "call_id", "name", "arguments", "id", "status")},
        {"type": "function_call_output", "call_id": call["call_id"], "output": "Rain"},
    ]
    assert post(client, tools=[TOOL], input=history).status_code == 200
    said = asked(scheduler).messages
    assert [one.role for one in said] == ["user", "assistant", "tool"]
    assert said[1].content.startswith("<tool_call>")
    assert said[2].content == "Rain"


def test_an_earlier_response_s_output_can_be_sent_back(client: Client, scheduler: FakeScheduler) -> None:
    first = post(client).json()
    more = [{"role": "user", "content": "Hi"}, *first["output"], {"role": "user", "content": "And?"}]
    assert post(client, input=more).status_code == 200
    assert [one.content for one in asked(scheduler).messages] == ["Hi", SAID, "And?"]


def test_cut_and_empty_answers(client: Client, scheduler: FakeScheduler) -> None:
    scheduler.finish = "length"
    got = post(client).json()
    assert (got["status"], got["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert data_of(post(client, stream=True).text)[-1].startswith('{"type": "response.incomplete"')
    scheduler.answer, scheduler.finish = [], "stop"
    assert post(client).json()["output"][0]["content"][0]["text"] == ""


def test_a_schema(client: Client, scheduler: FakeScheduler) -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}
    got = post(client, text={"format": form})
    assert got.status_code == 200, got.text
    assert got.json()["text"]["format"]["schema"] == {"type": "object"}
    assert asked(scheduler).options.generation.grammar is not None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"previous_response_id": "resp_1"}, "'previous_response_id' is not served"),
        ({"conversation": "c"}, "'conversation' is not served"),
        ({"background": True}, "'background' is not served"),
        ({"include": ["message.output_text.logprobs"]}, "'include' is not served"),
        ({"reasoning": {"effort": "low"}}, "'reasoning' is not served"),
        ({"prompt": {"id": "x"}}, "'prompt' is not served"),
        ({"top_logprobs": 3}, "'top_logprobs' is not served"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": [{"type": 5}]}, "input"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "last item"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"max_output_tokens": 10**9}, "max_output_tokens"),
        ({"tools": [TOOL], "pot": "x"}, "pot"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "schema"),
        ({"tool_choice": "required"}, "no tools"),
    ],
)
def test_what_is_not_served_is_refused_by_name(client: Client, fields: dict[str, Any], says: str) -> None:
    got = post(client, **fields)
    assert got.status_code in (400, 404), got.text
    assert says in got.json()["error"]["message"]


HALF = [
    {"metadata": {"\ud800": "x"}},
    {"metadata": {"x": "\ud800"}},
    {"tools": {"name": "x", "parameters": {"\ud800": 1}}},
    {"tools": {"name": "x", "parameters": {"description": "\ud800"}}},
    {"tools": {"name": "x", "user": ["\ud800"]}},
    {"format": {"name": "x", "schema": {"type": "object"}, "annotations": "\ud800"}},
    {"format": {"name": "x", "schema": {"\ud800": 1}}},
]


def as_responses(key: str, value: dict[str, Any]) -> dict[str, Any]:
    told = {
        "metadata": {"metadata": value},
        "tools": {"tools": [{"type": "function", **value}]},
        "format": {"text": {"format": {"type": "json_schema", **value}}},
    }
    return {"input": "Hi", **told[key]}


def as_chat(key: str, value: dict[str, Any]) -> dict[str, Any]:
    told = {
        "metadata": {"metadata": value},
        "tools": {"tools": [{"type": "function", "function": value}]},
        "format": {"response_format": {"type": "json_schema", "json_schema": value}},
    }
    return {"messages": [{"role": "user", "content": "Hi"}], **told[key]}


@pytest.mark.parametrize(
    ("path", "said"), [("/v1/responses", as_responses), ("/v1/chat/completions", as_chat)]
)
@pytest.mark.parametrize("fields", HALF)
def test_half_of_a_character_is_refused_wherever_it_stands(
    client: Client, scheduler: FakeScheduler, path: str, said: Callable[..., Any], fields: dict[str, Any]
) -> None:
    ((key, value),) = fields.items()
    body = json.dumps({"model": "toy", **said(key, value)})
    got = client("POST", path, content=body, headers={"Content-Type": "application/json"})
    assert got.status_code == 400, got.text
    assert "half of a character" in got.json()["error"]["message"]
    assert not scheduler.requests


def test_what_asks_for_nothing_is_accepted(client: Client) -> None:
    nothing = {"background": False, "include": [], "truncation": "auto", "service_tier": "auto", "user": "u"}
    assert post(client, **nothing, reasoning=None, stream_options=None).status_code == 200


def test_an_error_in_a_stream(client: Client, scheduler: FakeScheduler) -> None:
    from infinipot.errors import InputError

    scheduler.fail = InputError("too bad")
    assert json.loads(data_of(post(client, stream=True).text)[-1])["error"]["message"] == "too bad"
