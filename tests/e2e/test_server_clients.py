"""The server as its users meet it: the real `openai` client, pots, tenants, on a socket, with a toy model."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from toy_server import DEATH, FAULT, Running, running

KEY, OTHER = "key-of-the-first-tenant", "key-of-the-second-tenant"
HI = [{"role": "user", "content": "Hello"}]
LONG = "The sea was calm and nobody spoke. " * 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    # In chunks of one size no answer depends on what others do, even where two scores are nearly equal.
    with running(tmp_path_factory.mktemp("server"), keys=[KEY, OTHER], read_chunk=256) as found:
        yield found


def client_of(server: Running, key: str = KEY) -> Any:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=60)


@pytest.fixture
def client(server: Running) -> Iterator[Any]:
    with client_of(server) as found:
        yield found


@pytest.fixture
def http(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers={"X-API-Key": KEY}, timeout=60) as found:
        yield found


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["toy"]
    assert client.models.retrieve("toy").owned_by == "infinipot"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_chat_streamed_and_whole_are_the_same(client: Any) -> None:
    whole = client.chat.completions.create(model="toy", messages=HI, max_tokens=24)
    assert whole.choices[0].finish_reason in ("stop", "length")
    assert 0 < whole.usage.completion_tokens <= 24
    chunks = list(
        client.chat.completions.create(
            model="toy", messages=HI, max_tokens=24, stream=True, stream_options={"include_usage": True}
        )
    )
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_true_input_tokens_of_a_prompt_longer_than_the_pot(client: Any) -> None:
    got = client.chat.completions.create(
        model="toy", messages=[{"role": "user", "content": LONG}], max_tokens=4
    )
    assert len(LONG) > 4 * 256
    assert got.usage.prompt_tokens >= len(LONG)


def test_reading_tells_how_far_it_is(client: Any) -> None:
    steps = [
        chunk.model_extra["prompt_progress"]
        for chunk in client.chat.completions.create(
            model="toy",
            messages=[{"role": "user", "content": LONG}],
            max_tokens=2,
            stream=True,
            extra_body={"return_progress": True, "catalyst": "general"},
        )
        if "prompt_progress" in (chunk.model_extra or {})
    ]
    done = [step["processed"] for step in steps]
    assert len(done) > 4
    assert done == sorted(done)
    assert done[-1] == steps[-1]["total"] >= len(LONG)


def test_the_next_turn_reads_only_what_is_new(client: Any) -> None:
    talk = [{"role": "user", "content": "The door code is 4711. " * 40}]
    first = client.chat.completions.create(model="toy", messages=talk, max_tokens=6)
    talk += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "What is the code?"},
    ]
    second = client.chat.completions.create(model="toy", messages=talk, max_tokens=6)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens


def test_another_tenant_has_no_use_of_a_conversation(server: Running) -> None:
    talk = [{"role": "user", "content": "My secret is 12345. " * 20}]
    with client_of(server, KEY) as mine, client_of(server, OTHER) as theirs:
        first = mine.chat.completions.create(model="toy", messages=talk, max_tokens=4)
        talk += [
            {"role": "assistant", "content": first.choices[0].message.content},
            {"role": "user", "content": "And?"},
        ]
        stranger = theirs.chat.completions.create(model="toy", messages=talk, max_tokens=4)
        assert stranger.usage.prompt_tokens_details.cached_tokens == 0
        known = mine.chat.completions.create(model="toy", messages=talk, max_tokens=4)
        assert known.usage.prompt_tokens_details.cached_tokens > 0


def test_completions(client: Any) -> None:
    whole = client.completions.create(model="toy", prompt="Once upon", max_tokens=12, seed=1, temperature=1.0)
    again = client.completions.create(model="toy", prompt="Once upon", max_tokens=12, seed=1, temperature=1.0)
    assert whole.choices[0].text == again.choices[0].text
    parts = client.completions.create(
        model="toy", prompt="Once upon", max_tokens=12, seed=1, temperature=1.0, stream=True
    )
    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text


def test_stop_texts_end_an_answer(client: Any) -> None:
    whole = client.chat.completions.create(model="toy", messages=HI, max_tokens=40).choices[0].message.content
    stop = next(letter for letter in whole[2:] if letter not in whole[:2])
    got = client.chat.completions.create(model="toy", messages=HI, max_tokens=40, stop=[stop])
    assert got.choices[0].message.content == whole.partition(stop)[0]
    assert got.choices[0].finish_reason == "stop"


def test_errors_are_openais_own(server: Running, client: Any) -> None:
    with client_of(server, "a-key-nobody-knows") as nobody, pytest.raises(openai.AuthenticationError):
        nobody.models.list()
    with pytest.raises(openai.NotFoundError, match="use 'toy'"):
        client.chat.completions.create(model="gpt-4", messages=HI)
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(model="toy", messages=HI, tools=[{"type": "function"}])
    with pytest.raises(openai.NotFoundError, match="no pot"):
        client.chat.completions.create(model="toy", messages=HI, extra_body={"pot": "nowhere"})
    with pytest.raises(openai.BadRequestError, match="did you mean 'general'"):
        client.chat.completions.create(model="toy", messages=HI, extra_body={"catalyst": "generl"})
    broken = [{"role": "user", "content": FAULT}]
    with pytest.raises(openai.InternalServerError, match="out of memory") as told:
        client.chat.completions.create(model="toy", messages=broken)
    assert "secret" not in str(told.value)
    with pytest.raises(openai.APIError, match="out of memory"):  # reading had begun, so it is in the stream
        list(client.chat.completions.create(model="toy", messages=broken, stream=True))
    assert client.chat.completions.create(model="toy", messages=HI, max_tokens=2)  # and it is still up
    assert json.loads(server.get("/health")[1]) == {"status": "ok"}


def test_a_pot_from_upload_to_answer(http: httpx.Client, client: Any) -> None:
    with http.stream("POST", "/v1/pots/sea", content=LONG, headers={"Accept": "text/event-stream"}) as got:
        lines = [line for line in got.iter_lines() if line]
    steps = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert lines[-2] == "event: done"
    assert steps[-2]["bytes_read"] == steps[-2]["bytes_total"] == len(LONG)
    assert max(step["cycles"] for step in steps) > 2
    assert all(step["fill"] <= 256 for step in steps)
    pot = http.get("/v1/pots/sea").json()
    assert pot["tokens_read"] == len(LONG)
    asked = {"model": "toy", "messages": HI, "max_tokens": 4, "extra_body": {"pot": "sea"}}
    answer = client.chat.completions.create(**asked)
    assert answer.usage.prompt_tokens < 64  # the question's alone
    words = http.get("/v1/pots/sea/words").json()["words"]
    assert words
    assert all(0 < word["share"] <= 1 for word in words)
    more = http.post("/v1/pots/sea/append", content="The end.").json()
    assert more["tokens_read"] > pot["tokens_read"]
    file = http.get("/v1/pots/sea/file").content
    assert http.put("/v1/pots/twin/file", content=file).json()["tokens_read"] == more["tokens_read"]
    twin = client.chat.completions.create(**{**asked, "extra_body": {"pot": "twin"}})
    same = client.chat.completions.create(**asked)
    assert twin.choices[0].message.content == same.choices[0].message.content
    assert [http.delete(f"/v1/pots/{name}").status_code for name in ("sea", "twin")] == [200, 200]
    assert http.get("/v1/pots").json()["data"] == []


def test_sixteen_at_once_get_what_each_gets_alone(server: Running, client: Any) -> None:
    texts = [f"Number {index}. " * (index % 5 * 30 + 1) for index in range(16)]

    def ask(text: str) -> str:
        with client_of(server) as mine:
            got = mine.chat.completions.create(
                model="toy",
                messages=[{"role": "user", "content": text}],
                max_tokens=8,
                extra_body={"keep": False},
            )
            return str(got.choices[0].message.content)

    alone = [ask(text) for text in texts]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, texts)) == alone


def test_keys_and_texts_are_in_no_log(server: Running, http: httpx.Client) -> None:
    http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "xyzzy-secret"}]})
    http.get(f"/v1/models?key={KEY}")
    http.get(f"/{KEY}")
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as raw:
        raw.sendall(f"GET / HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\nbroken\r\n\r\n".encode())
        assert raw.recv(1000).startswith(b"HTTP/1.1 400")
    log = server.log.read_text()
    assert "POST /v1/chat/completions 200" in log
    assert KEY not in log
    assert "xyzzy-secret" not in log


@pytest.mark.parametrize("head", [b"X: " + b"a" * 100_000, b"\x00\x01\x02", b"GET / HTTP/9.9"])
def test_heads_that_are_none(server: Running, head: bytes) -> None:
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=20) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\n" + head + b"\r\n\r\n")
        with suppress(ConnectionResetError):  # what was not read when the server hung up
            assert raw.recv(1000)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431")
    assert server.get("/health")[0] == 200


def test_a_scheduler_that_dies_turns_health_red(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        body = {"messages": [{"role": "user", "content": DEATH}]}
        got = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
        assert got.status_code == 503
        status, told = server.get("/health")
        assert (status, json.loads(told)["status"]) == (503, "dead")
        assert server.get("/ready")[0] == 503
        assert httpx.post(f"{server.url}/v1/chat/completions", json={"messages": HI}).status_code == 503
