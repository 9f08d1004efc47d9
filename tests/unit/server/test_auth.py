"""Which routes need the key: all but one, found by walking the app; and how a key is compared and told."""

from __future__ import annotations

import base64
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.routing import BaseRoute

from fake_scheduler import FakeScheduler
from infinipot.errors import ConfigError
from infinipot.server import settings as settings_module
from infinipot.server.settings import Keys, Settings

from .conftest import KEY, OTHER_KEY, Client, calling, made

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND")
OPEN = {("GET", "/health"), ("HEAD", "/health"), ("GET", "/ready"), ("HEAD", "/ready")}


def paths(app: Any) -> set[str]:
    """Every path of the app, by its routes and by its own document, with names filled in."""

    def walk(routes: list[BaseRoute], before: str = "") -> Iterator[str]:
        for route in routes:
            inner = getattr(route, "routes", None) or getattr(
                getattr(route, "original_router", None), "routes", None
            )
            if inner and not hasattr(route, "endpoint"):
                yield from walk(inner, before + (getattr(route, "path", "") or getattr(route, "prefix", "")))
            elif hasattr(route, "path"):
                yield before + route.path

    found = {*walk(app.routes), *app.openapi()["paths"]}
    return {path.replace("{name:path}", "toy").replace("{name}", "book") for path in found}


def test_every_route_but_health_and_ready_needs_the_key(locked: Settings, scheduler: FakeScheduler) -> None:
    app = made(locked, scheduler)
    nobody = Client(app)
    every = paths(app)
    assert {
        "/",
        "/docs",
        "/openapi.json",
        "/metrics",
        "/ready",
        "/v1/state",
        "/v1/models",
        "/v1/pots",
    } <= every
    assert {"/v1/chat/completions", "/v1/pots/book/file", "/page/book", "/health"} <= every
    strange = {
        "/nowhere",
        "/health/",
        "/HEALTH",
        "//health",
        "/health/../v1/pots",
        "/v1",
        "/%68ealth/x",
        "/redoc",
    }
    seen = set()
    for method, path in product(METHODS, every | strange):
        got = nobody(method, path)
        if got.status_code == 401:
            assert method == "HEAD" or got.json()["error"]["type"] == "authentication_error"
            assert got.headers["www-authenticate"].startswith('Basic realm="infinipot"')
        else:
            seen.add((method, path))
    assert seen == OPEN
    assert scheduler.requests == []


DOCS = Path(__file__).parents[3] / "docs" / "serving.md"
TABLE = re.compile(r"(<!-- routes -->\n\n).*?(\n\n<!-- end of routes -->)", re.DOTALL)


def routes(app: Any) -> Iterator[tuple[str, str, str]]:
    """Every path of the app with its method, and what it does in its own words."""
    for route in app.routes:
        for one in getattr(getattr(route, "original_router", None), "routes", [route]):
            told = one.endpoint.__doc__ or "Return this list as an OpenAPI document."
            for method in sorted(one.methods - {"HEAD"}):
                yield method, one.path, told.splitlines()[0]


def test_the_docs_have_every_route_and_say_which_need_the_key(
    locked: Settings, scheduler: FakeScheduler
) -> None:
    """A new route that is not in the table fails here; INFINIPOT_WRITE_DOCS=1 writes the table."""
    app = made(locked, scheduler)
    nobody, rows = Client(app), ["| route | needs the key | what |", "|---|---|---|"]
    walked = list(routes(app))
    filled = {path.replace("{name:path}", "toy").replace("{name}", "book") for _, path, _ in walked}
    assert paths(app) - filled == {"/v1/models/book"}  # the same route, as the document has it
    for method, path, told in walked:
        status = nobody(method, path.replace("{name:path}", "toy").replace("{name}", "book")).status_code
        shown = path.replace("{name:path}", "{name}")
        rows.append(f"| `{method} {shown}` | {'yes' if status == 401 else 'no'} | {told} |")
    text = DOCS.read_text("utf-8")
    wanted = TABLE.sub(lambda found: found[1] + "\n".join(rows) + found[2], text)
    if os.environ.get("INFINIPOT_WRITE_DOCS"):
        DOCS.write_text(wanted, "utf-8")
    else:
        assert text == wanted
    assert sum("| no |" in row for row in rows) == 2


def test_every_documented_route_answers_with_the_key(locked: Settings, scheduler: FakeScheduler) -> None:
    app = made(locked, scheduler)
    known = Client(app, Authorization=f"Bearer {KEY}")
    for path in paths(app):
        assert known("GET", path).status_code != 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"bearer   {KEY} "},
        {"X-API-Key": KEY},
        {"Authorization": "Basic " + base64.b64encode(f"anyone:{KEY}".encode()).decode()},
        {"Authorization": "Basic " + base64.b64encode(f":{OTHER_KEY}".encode()).decode()},
    ],
)
def test_ways_to_send_a_key(locked: Settings, scheduler: FakeScheduler, headers: dict[str, str]) -> None:
    assert Client(made(locked, scheduler), **headers)("GET", "/v1/models").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": KEY},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {KEY}x"},
        {"Authorization": f"Bearer {KEY[:-1]}"},
        {"Authorization": f"Bearer {KEY.upper()}"},
        {"Authorization": f"Bearer {KEY},{OTHER_KEY}"},
        {"Authorization": f"Digest {KEY}"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic " + base64.b64encode(KEY.encode()).decode()},
        {"Authorization": "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()},
        {"X-API-Key": ""},
        {"Cookie": f"key={KEY}"},
    ],
)
def test_what_is_no_key(locked: Settings, scheduler: FakeScheduler, headers: dict[str, str]) -> None:
    assert Client(made(locked, scheduler), **headers)("GET", "/v1/models").status_code == 401


def test_a_key_in_an_address_is_none(locked: Settings, scheduler: FakeScheduler) -> None:
    for query in (f"?key={KEY}", f"?api_key={KEY}", f"?access_token={KEY}"):
        assert Client(made(locked, scheduler))("GET", f"/v1/models{query}").status_code == 401


def test_two_keys_in_one_request_are_none(locked: Settings, scheduler: FakeScheduler) -> None:
    async def call() -> int:
        async with calling(made(locked, scheduler)) as caller:
            both = [("Authorization", f"Bearer {KEY}"), ("Authorization", f"Bearer {OTHER_KEY}")]
            return (await caller.get("/v1/models", headers=both)).status_code

    assert anyio.run(call) == 401


def test_every_key_is_compared_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Keys.of([f"key-number-{index}" for index in range(5)])
    seen: list[tuple[int, int]] = []

    def counting(a: bytes, b: bytes) -> bool:
        seen.append((len(a), len(b)))
        return a == b

    monkeypatch.setattr(settings_module.hmac, "compare_digest", counting)
    for key in (b"key-number-0", b"key-number-4", b"k", None):
        known.tenant(key)
    assert seen == [(32, 32)] * 20


def test_keys_are_held_as_digests_only() -> None:
    assert KEY not in repr(Keys.of([KEY]))
    for bad in ("", "  ", "with space", "ключ", "a\nb"):
        with pytest.raises(ConfigError):
            Keys.of([bad])
    assert Keys().tenant(None) == "public"
    assert Keys.of([KEY]).tenant(None) is None


def test_keys_are_in_no_log(
    as_tenant: Callable[[str], Client], scheduler: FakeScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = as_tenant(KEY)
    client.chat()
    scheduler.fail_first = RuntimeError("broken")
    assert client("POST", f"/v1/chat/completions?key={KEY}", json={"messages": []}).status_code == 400
    assert client.chat().status_code == 500
    client("GET", f"/{KEY}?api_key={KEY}")
    Client(client.app, Authorization=f"Bearer wrong-{KEY}")("GET", f"/v1/models?key={KEY}")
    ours = [record for record in caplog.records if record.name.startswith(("infinipot", "uvicorn"))]
    assert any("POST /v1/chat/completions 200" in record.getMessage() for record in ours)
    for record in ours:
        shown = logging.Formatter().format(record)
        assert KEY not in shown
        assert "Bearer" not in shown


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[bad"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Host": "rebound.example"}, 403),
        ({"Host": "127.0.0.1:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "[bad"}, 403),
    ],
)
def test_a_browser_is_not_used_against_its_owner(
    client: Client, headers: dict[str, str], status: int
) -> None:
    assert client("GET", "/v1/models", headers=headers).status_code == status


def test_no_form_of_another_site_is_a_navigation(client: Client) -> None:
    """A form sent by another site's page is a navigation too: only reading may come that way."""
    form = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    got = client("POST", "/v1/pots/book", content=b"text", headers=form)
    assert got.status_code == 403


def test_with_a_key_any_name_will_do(as_tenant: Callable[[str], Client]) -> None:
    assert as_tenant(KEY)("GET", "/v1/models", headers={"Host": "pots.example"}).status_code == 200


def test_no_websockets(client: Client) -> None:
    sent: list[dict[str, Any]] = []

    async def call() -> None:
        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        scope = {"type": "websocket", "path": "/health", "headers": [], "query_string": b""}
        await client.app(scope, receive, send)

    anyio.run(call)
    assert sent == [{"type": "websocket.close", "code": 1008}]


APP = "https://app.example"


@pytest.fixture
def shared(locked: Settings, scheduler: FakeScheduler) -> Any:
    return made(replace(locked, allow_origin=(APP,)), scheduler)


def test_without_an_allowed_origin_there_are_no_such_headers(
    locked: Settings, scheduler: FakeScheduler
) -> None:
    got = Client(made(locked, scheduler), Origin=APP, Authorization=f"Bearer {KEY}")("GET", "/v1/models")
    assert got.status_code == 403
    assert not [name for name in got.headers if name.startswith("access-control")]


def test_a_page_of_an_allowed_origin_may_ask(shared: Any) -> None:
    headers = {"Origin": APP, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    page = Client(shared, Authorization=f"Bearer {KEY}", **headers)
    got = page.chat()
    assert got.status_code == 200
    assert got.headers["access-control-allow-origin"] == APP
    assert "access-control-allow-credentials" not in got.headers
    assert "Origin" in got.headers["vary"]
    refused = Client(shared, **headers).chat()  # an error can be read too
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, APP)


def test_a_browser_asks_first(shared: Any) -> None:
    asks = {
        "Origin": APP,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type,x-stainless-lang",
    }
    got = Client(shared, **asks)("OPTIONS", "/v1/chat/completions")
    assert got.status_code == 204
    assert "POST" in got.headers["access-control-allow-methods"]
    assert got.headers["access-control-allow-headers"] == asks["Access-Control-Request-Headers"]
    evil = Client(shared, **{**asks, "Access-Control-Request-Headers": "a: b"})("OPTIONS", "/v1/pots")
    assert "access-control-allow-headers" not in evil.headers


@pytest.mark.parametrize(
    "origin",
    [
        "https://app.example.evil.example",
        "http://app.example",
        "https://app.example:444",
        "https://sub.app.example",
        "https://APP.example/",
        "null",
        "",
        "https://app.example, https://evil.example",
    ],
)
def test_no_other_origin_may(shared: Any, origin: str) -> None:
    for method in ("POST", "OPTIONS"):
        page = Client(shared, Origin=origin, Authorization=f"Bearer {KEY}")
        got = page(method, "/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]})
        assert got.status_code in (403, 405), method
        assert "access-control-allow-origin" not in got.headers


@pytest.mark.parametrize(
    "text", ["*", "app.example", "https://app.example/x", "null", "ftp://x", "", "https://a@b"]
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no origin"):
        Settings.of({"allow_origin": [text]})


def test_origins_as_they_are_given() -> None:
    given = Settings.of(
        {"allow_origin": ["https://App.example/, http://localhost:3000", "http://localhost:3000"]}
    )
    assert given.allow_origin == ("https://app.example", "http://localhost:3000")
    assert Settings.of_variables({"INFINIPOT_ALLOW_ORIGIN": APP}).allow_origin == (APP,)
