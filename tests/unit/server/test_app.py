"""Status, numbers, page, settings; and what schemathesis makes of the OpenAPI document."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import Unsatisfiable
from prometheus_client.parser import text_string_to_metric_families
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from starlette.testclient import TestClient

from fake_scheduler import FakeScheduler
from infinipot.errors import ConfigError, StoreError
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.server import lifecycle
from infinipot.server.settings import Keys, Settings
from infinipot.store import LocalStore
from infinipot.store.match import card_of, put_into
from toy_server import toy_engine
from waiting import eventually

from .conftest import Client, made


def test_models(client: Client) -> None:
    (model,) = client("GET", "/v1/models").json()["data"]
    assert (model["id"], model["object"]) == ("toy", "model")
    assert client("GET", "/v1/models/toy").json() == model
    assert client("GET", "/v1/models/org/other").json()["error"]["code"] == "model_not_found"


def test_a_model_in_a_folder_is_known_by_its_last_name(scheduler: FakeScheduler, settings: Settings) -> None:
    client = Client(made(replace(settings, model=str(settings.spool)), scheduler))
    assert client("GET", "/v1/models").json()["data"][0]["id"] == "spool"
    assert client("GET", "/v1/state").json()["model"] == "spool"


def test_a_dead_worker_turns_health_red(client: Client, scheduler: FakeScheduler) -> None:
    assert client("GET", "/health").json() == {"status": "ok"}
    scheduler.ready, scheduler.failure = False, "CudaError: secret"
    got = client("GET", "/health")
    assert (got.status_code, got.json()["status"]) == (503, "dead")
    assert "secret" not in got.text
    assert client("GET", "/ready").status_code == 503
    assert client.chat().status_code == 503


def test_the_scheduler_starts_and_stops_with_the_app(settings: Settings, scheduler: FakeScheduler) -> None:
    app = made(settings, scheduler)
    scheduler.ready = False
    with TestClient(app, base_url="http://localhost") as client:
        eventually(lambda: client.get("/ready").status_code == 200)
    assert scheduler.stopped == settings.drain_s


def test_a_scheduler_that_does_not_start_is_dead(settings: Settings, scheduler: FakeScheduler) -> None:
    def broken() -> None:
        raise ConfigError("no room")

    scheduler.start = broken  # type: ignore[method-assign]
    app = made(settings, scheduler)
    scheduler.ready = False
    with TestClient(app, base_url="http://localhost") as client:
        eventually(lambda: app.state.service.failed is not None)
        assert client.get("/health").status_code == 503
    assert scheduler.stopped is None


def test_metrics(client: Client) -> None:
    client.chat()
    client.chat(stream=True)
    client("POST", "/v1/pots/secret-name", content="Once")
    client("GET", "/secret-path")
    text = client("GET", "/metrics").text
    assert "secret" not in text
    found = {
        (sample.name, sample.labels.get("route"), sample.labels.get("status")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["infinipot_requests_total", "/v1/chat/completions", "200"] == 2
    assert found["infinipot_requests_total", "/v1/pots/{name}", "201"] == 1
    assert found["infinipot_requests_total", "other", "404"] == 1
    assert found["infinipot_tokens_read_total", None, None] == 24
    assert found["infinipot_tokens_generated_total", None, None] == 10
    assert found["infinipot_tokens_cached_total", None, None] == 4
    assert found["infinipot_cycles_total", None, None] == 6
    assert found["infinipot_first_token_seconds_count", None, None] == 2
    assert found["infinipot_slots_busy", None, None] == 0
    assert found["infinipot_memory_bound_bytes", None, None] == 3


def test_state_has_numbers_only(client: Client) -> None:
    told = client("GET", "/v1/state").json()
    assert {"slots", "slots_busy", "queued", "memory_bytes", "memory_bound_bytes", "model"} <= set(told)


@pytest.mark.parametrize("path", ["/", "/page/icon.svg", "/page/page.js", "/docs", "/v1/models", "/nowhere"])
def test_browsers_are_told_to_load_nothing_from_elsewhere(client: Client, path: str) -> None:
    got = client("GET", path)
    assert "default-src 'self'" in got.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in got.headers["content-security-policy"]
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"


def test_the_page_and_its_files(client: Client) -> None:
    page = client("GET", "/")
    assert page.headers["content-type"].startswith("text/html")
    assert client("GET", "/page/page.js").headers["content-type"].startswith("text/javascript")
    for bad in ("nothing.js", "..%2fapp.py", "%2e%2e", "__init__.py", "index.html%00.js"):
        assert client("GET", f"/page/{bad}").status_code == 404


def test_the_list_of_routes_loads_nothing(client: Client) -> None:
    listing = client("GET", "/docs").text
    assert "POST /v1/pots/{name}/append" in listing
    assert "http" not in listing.replace("https://", "http://").partition("<dl>")[0].replace(
        "<!doctype html>", ""
    )
    assert "<script" not in listing


def test_the_document_says_how_a_key_is_sent(client: Client) -> None:
    document = client("GET", "/openapi.json").json()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "basic", "header"}
    assert document["paths"]["/health"]["get"]["security"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": 0},
        {"queue": -1},
        {"port": 70_000},
        {"max_tokens": 0},
        {"spool": Path("nowhere")},
        {"max_body": 5},
    ],
)
def test_settings_that_cannot_work(settings: Settings, wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        replace(settings, **wrong)  # type: ignore[arg-type]


def test_a_server_open_to_anyone_is_warned_of(settings: Settings) -> None:
    assert settings.warnings() == []
    for host in ("0.0.0.0", "", "::", "192.168.1.5", "example.org"):
        assert any("ANYONE" in line for line in replace(settings, host=host).warnings())
        assert replace(settings, host=host, keys=Keys.of(["k" * 16])).warnings() == []
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert replace(settings, host=host).warnings() == []
    assert "guessed" in replace(settings, keys=Keys.of(["short", "k" * 16])).warnings()[0]


LOCAL = {"Host": "localhost"}


def operations() -> list[tuple[str, str]]:
    methods = {"get", "put", "post", "delete"}
    document = made(Settings(model="toy"), FakeScheduler(LocalStore(Path("unused")))).openapi()
    return [(method, path) for path, found in document["paths"].items() for method in methods & set(found)]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), sorted(operations()))
def test_nothing_in_the_document_breaks_the_server(
    scheduler: FakeScheduler, settings: Settings, method: str, path: str, mode: GenerationMode
) -> None:
    """Schemathesis: requests that the document allows, and ones that it does not."""
    operation = schemathesis.openapi.from_asgi("/openapi.json", made(settings, scheduler), headers=LOCAL)[
        path
    ][method]

    @given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis_settings(
        max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    def check(case: schemathesis.Case) -> None:
        answer = case.call(headers=LOCAL)
        case.validate_response(answer, checks=[not_a_server_error])
        assert answer.status_code < 400 or answer.status_code == 405 or "error" in answer.json()

    try:
        check()
    except Unsatisfiable:  # nothing can be wrong with a request that has no parts
        assert mode is GenerationMode.NEGATIVE


OLD = Settings(model="toy", capacity=256, recall=0, units="slots")
NEW = replace(OLD, units=None)
REFUSED = "the pot was read with units slots, not sentences: use {} slots, or read the text again"


@pytest.fixture
def kept(tmp_path: Path) -> Reader:
    """The reader of a pot that was kept as before whole sentences: its card knows no units."""
    engine, recipe = lifecycle.engine_and_recipe(OLD, toy_engine)
    reader = engine.reader(recipe)
    reader.read("The keeper is Marlow. The sea was calm. " * 30)
    card = card_of(engine, recipe, reader, "Log", "0" * 64, 5)
    assert reader.pot.cycles
    assert "units" not in card.recipe
    LocalStore(tmp_path).save("old", reader.state(), card)
    return reader


def test_a_pot_that_was_kept_slot_by_slot_says_the_same_where_units_are_slots(
    kept: Reader, tmp_path: Path
) -> None:
    engine, recipe = lifecycle.engine_and_recipe(NEW, toy_engine)
    with pytest.raises(StoreError, match=REFUSED.format("`units`")):
        put_into(engine.reader(recipe), LocalStore(tmp_path), "old", engine, recipe)
    engine, recipe = lifecycle.engine_and_recipe(OLD, toy_engine)
    put_into(reader := engine.reader(recipe), LocalStore(tmp_path), "old", engine, recipe)
    said, again = ("".join(one.ask("Who?", Generation(9))) for one in (kept, reader))
    assert said == again != ""


@pytest.mark.usefixtures("kept")
def test_a_server_names_the_option_that_serves_such_a_pot_and_serves_it(tmp_path: Path) -> None:
    asked = {"model": "toy", "messages": [{"role": "user", "content": "Who?"}], "pot": "old", "max_tokens": 9}
    answers = []
    for settings in (NEW, OLD):
        served = lifecycle.engine_and_recipe(settings, toy_engine)
        app = lifecycle.build_app(settings, *served, LocalStore(tmp_path))
        with TestClient(app, base_url="http://localhost") as client:
            eventually(lambda client=client: client.get("/ready").status_code == 200)
            answers.append(client.post("/v1/chat/completions", json=asked))
    refused, answered = answers
    assert (refused.status_code, answered.status_code) == (409, 200)
    told = f"{REFUSED.format('units')} (the server's operator sets units)"
    assert refused.json()["error"]["message"] == f"cannot use pot 'old': {told}"
    assert answered.json()["usage"]["completion_tokens"] == 9
