"""Answers, whole and streamed, in OpenAI's shapes; and fields that are not served."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anyio
import pytest

from fake_scheduler import SAID, FakeScheduler
from infinipot.errors import InputError
from infinipot.server.scheduler.requests import BusyError, ChatRequest, FaultError, Message
from waiting import comes_true, within_a_minute

from .conftest import Client, calling, data_of


def test_a_whole_answer(client: Client) -> None:
    answer = client.chat(max_tokens=5, temperature=0.5, seed=-1, stop=["x"]).json()
    choice = answer["choices"][0]
    assert answer["object"] == "chat.completion"
    assert choice["message"] == {"role": "assistant", "content": SAID}
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["prompt_tokens"] == 8
    assert answer["usage"]["total_tokens"] == 13
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 2


def test_a_request_says_what_was_asked(client: Client, scheduler: FakeScheduler) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    client.chat(
        messages=messages,
        max_completion_tokens=7,
        stop="x",
        top_p=0.5,
        catalyst="general",
        keep=False,
        seed=3,
    )
    (request,) = scheduler.requests
    assert isinstance(request, ChatRequest)
    assert list(request.messages) == [Message("system", "Be brief."), Message("user", "a\nb")]
    assert (request.tenant, request.pot, request.keep) == ("public", None, False)
    assert request.options.stops == ("x",)
    assert request.options.catalyst == "general"
    wanted = request.options.generation
    assert (wanted.max_new_tokens, wanted.top_p, wanted.seed, wanted.temperature) == (7, 0.5, 3, 0.0)


def test_a_stream_is_the_answer_in_chunks(client: Client) -> None:
    got = client.chat(stream=True, stream_options={"include_usage": True})
    assert got.headers["content-type"].startswith("text/event-stream")
    *chunks, usage, done = data_of(got.text)
    assert done == "[DONE]"
    told = [json.loads(chunk) for chunk in chunks]
    assert told[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in told) == SAID
    assert [chunk["choices"][0]["finish_reason"] for chunk in told[-2:]] == [None, "stop"]
    assert all(chunk["usage"] is None for chunk in told)
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"]["completion_tokens"] == 5
    assert len({chunk["id"] for chunk in told}) == 1


def test_progress_has_llama_cpps_shape(client: Client) -> None:
    chunks = [json.loads(d) for d in data_of(client.chat(stream=True, return_progress=True).text)[:-1]]
    steps = [chunk for chunk in chunks if "prompt_progress" in chunk]
    assert [step["prompt_progress"]["processed"] for step in steps] == [0, 4, 8]
    assert steps[-1]["prompt_progress"] == {"total": 8, "cache": 0, "processed": 8, "time_ms": 250}
    assert steps[-1]["pot"] == {"fill": 8, "capacity": 128, "cycles": 2}
    assert steps[0]["choices"][0]["delta"] == {}


def test_without_being_asked_no_progress(client: Client) -> None:
    assert "prompt_progress" not in client.chat(stream=True).text


def test_completions(client: Client) -> None:
    whole = client("POST", "/v1/completions", json={"prompt": ["Once"]}).json()
    assert (whole["object"], whole["choices"][0]["text"]) == ("text_completion", SAID)
    streamed = client("POST", "/v1/completions", json={"prompt": "Once", "stream": True}).text
    *chunks, done = data_of(streamed)
    assert "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks) == SAID
    assert done == "[DONE]"


@pytest.mark.parametrize(
    "field",
    [
        {"functions": [{}]},
        {"function_call": {"name": "f"}},
        {"prediction": {}},
        {"reasoning_effort": "low"},
        {"web_search_options": {}},
        {"modalities": ["audio"]},
        {"verbosity": "low"},
        {"logit_bias": {"5": 1}},
        {"presence_penalty": 0.5},
        {"frequency_penalty": -1},
        {"chat_template": "{{ evil }}"},
        {"guided_json": {}},
        {"audio": {}},
        {"anything_else": 1},
    ],
    ids=lambda field: next(iter(field)),
)
def test_what_would_change_the_answer_is_refused_by_name(client: Client, field: dict[str, Any]) -> None:
    got = client.chat(**field)
    assert got.status_code == 400
    assert f"'{next(iter(field))}'" in got.json()["error"]["message"]
    assert got.json()["error"]["type"] == "invalid_request_error"


def test_what_asks_for_nothing_is_accepted(client: Client) -> None:
    plain = {"tools": [], "tool_choice": "none", "logprobs": False, "presence_penalty": 0, "logit_bias": None}
    harmless = {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "n": 1}
    assert client.chat(**plain, **harmless, response_format={"type": "text"}).status_code == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 17}, "n"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"logprobs": 2}, "logprobs"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "code_interpreter"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": "json"}, "response_format"),
        ({"n": True}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": "x" * 257}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"seed": 2**63}, "seed"),
        ({"catalyst": ""}, "catalyst"),
    ],
)
def test_wrong_values_are_refused_with_their_field(
    client: Client, fields: dict[str, Any], param: str
) -> None:
    got = client.chat(**fields)
    assert got.status_code == 400
    assert got.json()["error"]["param"].split(".")[0] == param


def test_too_many_tokens_and_another_model(client: Client) -> None:
    assert "at most 16384" in client.chat(max_tokens=16_385).json()["error"]["message"]
    got = client.chat(model="gpt-4")
    assert (got.status_code, got.json()["error"]["code"]) == (404, "model_not_found")


def test_a_conversation_ends_with_its_user(client: Client) -> None:
    got = client.chat(messages=[{"role": "assistant", "content": "Hi"}])
    assert "last message" in got.json()["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status", "kind", "wait"),
    [
        (BusyError("all slots are busy", 7), 429, "rate_limit_error", "7"),
        (BusyError("closing", 5, closing=True), 503, "server_error", "5"),
        (FaultError("out of memory"), 503, "server_error", "1"),
        (InputError("too long"), 400, "invalid_request_error", None),
        (RuntimeError("secret detail"), 500, "server_error", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_answer_have_a_status(
    client: Client,
    scheduler: FakeScheduler,
    error: Exception,
    status: int,
    kind: str,
    wait: str,
    stream: bool,
) -> None:
    scheduler.fail_first = error
    got = client.chat(stream=stream)
    assert got.status_code == status
    assert got.json()["error"]["type"] == kind
    assert got.headers.get("retry-after") == wait
    assert "secret" not in got.text


def test_errors_name_fields_of_the_request_and_no_flags(client: Client, scheduler: FakeScheduler) -> None:
    scheduler.fail_first = InputError("too long", remedy="shorten it or use `capacity` 600")
    said = client.chat().json()["error"]["message"]
    assert said == "too long: shorten it or use capacity 600 (the server's operator sets capacity)"
    scheduler.fail_first = InputError("too many", remedy="use `max_new_tokens` 5 and another `catalyst`")
    assert client.chat().json()["error"]["message"] == "too many: use max_tokens 5 and another catalyst"


def test_an_error_in_the_middle_ends_a_stream(client: Client, scheduler: FakeScheduler) -> None:
    scheduler.fail = FaultError("out of memory while serving this request")
    got = client.chat(stream=True)
    *_, last = data_of(got.text)
    assert json.loads(last)["error"]["message"].startswith("out of memory")
    assert "[DONE]" not in got.text
    assert client.chat().status_code == 503  # and a whole answer is none


def test_a_full_queue_says_when_to_come_back(client: Client, scheduler: FakeScheduler) -> None:
    scheduler.refuse = BusyError("all slots are busy", 3)
    got = client.chat(stream=True)
    assert (got.status_code, got.headers["retry-after"]) == (429, "3")


def test_not_ready_and_closing_take_no_work(client: Client, scheduler: FakeScheduler) -> None:
    scheduler.ready = False
    assert client.chat().status_code == 503
    assert client("GET", "/ready").status_code == 503
    scheduler.ready = True
    assert client("GET", "/ready").status_code == 200
    client.app.state.service.closing = True
    assert client.chat().headers["retry-after"]
    assert client("GET", "/ready").status_code == 503
    assert client("GET", "/health").status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_gives_its_request_up(
    client: Client, scheduler: FakeScheduler, stream: bool
) -> None:
    scheduler.pause = 0.5  # a whole answer takes nine times as long

    async def leave() -> None:
        body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "stream": stream}).encode()
        head = [(b"content-type", b"application/json"), (b"host", b"localhost")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "raw_path": b"",
            "query_string": b"",
            "headers": head,
            "http_version": "1.1",
            "scheme": "http",
            "server": ("localhost", 80),
            "client": ("localhost", 1),
            "root_path": "",
        }
        given = False
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            pass

        task = asyncio.ensure_future(client.app(scope, receive, send))
        await comes_true(lambda: scheduler.running == 1)
        gone.set()
        await task
        await comes_true(lambda: scheduler.running == 0)

    anyio.run(within_a_minute, leave)
    assert (scheduler.running, scheduler.cancelled) == (0, 1)


def test_a_long_wait_is_kept_open_by_comments(
    client: Client, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infinipot.server.http import streams

    monkeypatch.setattr(streams, "KEEP_ALIVE_S", 0.05)
    monkeypatch.setattr(streams, "PEEK_S", 0.01)
    scheduler.pause = 0.2
    text = client.chat(stream=True).text
    assert ": keep-alive" in text
    assert data_of(text)[-1] == "[DONE]"


def test_slots_are_free_after_many_at_once(client: Client, scheduler: FakeScheduler) -> None:
    async def many() -> list[int]:
        async with calling(client.app) as caller:
            body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
            calls = [caller.post("/v1/chat/completions", json=body) for _ in range(20)]
            return [got.status_code for got in await asyncio.gather(*calls)]

    assert anyio.run(many) == [200] * 20
    assert scheduler.running == 0
