"""`infinipot serve`: options, variables and keys, without a model."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from infinipot.cli import serve as command
from infinipot.cli.expand import Given
from infinipot.cli.main import app
from infinipot.errors import ConfigError
from infinipot.server.settings import Settings


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What would have been served."""
    found: list[Settings] = []
    monkeypatch.setattr(command, "run_server", lambda settings, given: found.append(settings))
    return found


def run(*words: str, **env: str) -> Any:
    return CliRunner().invoke(app, ["serve", *words], env=env)


def test_the_defaults_are_safe(served: list[Settings]) -> None:
    assert run().exit_code == 0
    (settings,) = served
    assert settings == Settings(model=settings.model)
    assert settings.local
    assert not settings.keys
    assert settings.warnings() == []


def test_every_option_is_also_a_variable(served: list[Settings], tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# ours\nkey-from-the-file\n\n")
    values = {
        "model": "smollm2",
        "recipe": "ccd",
        "capacity": "512",
        "slots": "3",
        "conversations": "4",
        "queue": "5",
        "store": "memory://pots",
        "device": "cpu",
        "dtype": "float32",
        "host": "0.0.0.0",
        "port": "81",
        "allow-origin": "https://app.example,http://localhost:3000",
        "least-rate": "9",
        "max-send": "99.5",
        "api-key": "first-key,second-key",
        "api-key-file": str(tmp_path / "keys"),
        "max-body": "2048",
        "max-upload": "4096",
        "max-uploads": "6",
        "max-downloads": "9",
        "max-tokens": "7",
        "drain": "8.5",
        "spool": str(tmp_path),
    }
    words = [word for name, value in values.items() for word in (f"--{name}", value)]
    assert run(*words).exit_code == 0
    variables = {f"INFINIPOT_{name.upper().replace('-', '_')}": value for name, value in values.items()}
    assert run(**variables).exit_code == 0
    by_option, by_variable = served
    assert by_option == by_variable == Settings.of_variables(variables)
    assert (by_option.slots, by_option.max_tokens, by_option.drain_s) == (3, 7, 8.5)
    for key in (b"first-key", b"second-key", b"key-from-the-file"):
        assert by_option.keys.tenant(key)
    assert by_option.keys.tenant(b"first-key,second-key") is None
    assert by_option.allow_origin == ("https://app.example", "http://localhost:3000")


def test_a_variable_that_is_no_number() -> None:
    with pytest.raises(ConfigError, match="INFINIPOT_SLOTS is 'two'"):
        Settings.of_variables({"INFINIPOT_SLOTS": "two"})
    assert Settings.of_variables({"OTHER": "x", "INFINIPOT_STORE": ""}).store is None


def test_keys_repeat(served: list[Settings]) -> None:
    run("--api-key", "one-key-of-two", "--api-key", "other-key-of-two")
    assert len(served[0].keys.digests) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--slots", "0"], "`slots` is 0"),
        (["--api-key", ""], "key is empty"),
        (["--api-key", "a,,b"], "key is empty"),
        (["--api-key-file", "nowhere"], "cannot read the keys"),
        (["--spool", "nowhere"], "no folder nowhere"),
        (["--port", "99999"], "`port` is 99999"),
    ],
)
def test_wrong_options(served: list[Settings], words: list[str], says: str) -> None:
    done = run(*words)
    assert isinstance(done.exception, ConfigError)
    assert says in str(done.exception)
    assert served == []


def test_a_file_without_keys_does_not_open_the_door(served: list[Settings], tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n# none\n")
    done = run("--api-key-file", str(tmp_path / "keys"))
    assert "there is no key in" in str(done.exception)
    assert served == []


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = run()
    assert "pip install '.[serve]'" in str(done.exception)


def test_an_open_door_is_warned_of_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from infinipot.server import lifecycle as running

    def taken(settings: Settings) -> None:
        raise ConfigError("enough")

    monkeypatch.setattr(running, "listen", taken)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    with pytest.raises(ConfigError, match="enough"):
        command.run_server(Settings(model="toy", host="0.0.0.0"), Given({}))
    assert "ANYONE who can reach 0.0.0.0" in caplog.text
