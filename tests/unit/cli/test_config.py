"""Variables and the user's file: for every option of every command, in a clear order, with clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands import run
from doc_pages import every_command
from infinipot.cli import serve as serving
from infinipot.cli.config import Config, config_path
from infinipot.cli.expand import options_of
from infinipot.cli.main import app
from infinipot.errors import ConfigError
from infinipot.recipes.option import Option
from infinipot.server.settings import Settings

COUNT = Option("max_count", int, 3, "How many.", least=1)
PARTS = Option("part", str, None, "Parts.", many=True)
TREE = {"ask": {"max_count": None, "model": None}, "pots": {"list": {"store": None}}}


def config(folder: Path, text: str, **environment: str) -> Config:
    (folder / "c.toml").write_text(text)
    return Config.load({"INFINIPOT_CONFIG": str(folder / "c.toml"), **environment})


def found(told: Config, option: Option, *command: str) -> tuple[object, str] | None:
    got = told.find(option, command)
    return got and (got.value, got.where)


def test_a_variable_comes_before_the_table_and_the_table_before_the_top(tmp_path: Path) -> None:
    text = "max-count = 4\n[ask]\nmax_count = 5\n[pots.list]\nmax-count = '2k'\n"
    place = tmp_path / "c.toml"
    told = config(tmp_path, text)
    assert found(told, COUNT, "read") == (4, f"max-count in {place}")
    assert found(told, COUNT, "ask") == (5, f"[ask] max-count in {place}")
    assert found(told, COUNT, "pots", "list") == (2048, f"[pots.list] max-count in {place}")
    over = config(tmp_path, text, INFINIPOT_MAX_COUNT="6")
    assert found(over, COUNT, "ask") == (6, "INFINIPOT_MAX_COUNT")
    assert found(config(tmp_path, text, INFINIPOT_MAX_COUNT=""), COUNT, "read") == (
        4,
        f"max-count in {place}",
    )
    assert found(config(tmp_path, ""), COUNT, "read") is None


def test_values_are_those_of_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    quick, sizes = Option("quick", bool, False, "Quick."), Option("sizes", str, "1", "Sizes.")
    place = Option("place", Path, None, "A place.")
    told = config(tmp_path, 'quick = true\nsizes = [512, 1024]\npart = ["a b", "c"]\nplace = "~/x"\n')
    values = [found(told, one) for one in (quick, sizes, PARTS, place)]
    assert [value and value[0] for value in values] == [True, "512,1024", ["a b", "c"], tmp_path / "x"]
    one = config(tmp_path, "quick = false\npart = 'a b'", INFINIPOT_PLACE="here", INFINIPOT_SIZES="1 2")
    values = [found(one, option) for option in (quick, PARTS, place, sizes)]
    assert [value and value[0] for value in values] == [False, ["a b"], Path("here"), "1 2"]
    assert found(Config({"INFINIPOT_PART": "a b"}), PARTS) == (["a b"], "INFINIPOT_PART")
    for text in ("1", "yes", "on", "True"):
        assert found(Config({"INFINIPOT_QUICK": text}), quick) == (True, "INFINIPOT_QUICK")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max-cuont = 4", "has an unknown key 'max-cuont': did you mean 'max-count'?"),
        ("[ask]\nstroe = 'x'", "has an unknown key 'stroe' in [ask]: use one of max-count, model"),
        ("[ask]\nstore = 'x'", "has an unknown key 'store' in [ask]"),
        ("[aks]\nmodel = 'x'", "has an unknown table 'aks': did you mean 'ask'?"),
        ("[pots]\nstore = 'x'", "has an unknown key 'store' in [pots]"),
        ("[pots.lists]\nstore = 'x'", "has an unknown table 'lists' in [pots]: did you mean 'list'?"),
        ("ask = 3", "has an unknown key 'ask'"),
        ("[max_count]\na = 1", "has an unknown table 'max-count'"),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(tmp_path, text).check(TREE)
    assert f"{tmp_path / 'c.toml'} {says}" in str(error.value)
    assert "\n" not in str(error.value)


def test_known_keys_are_taken(tmp_path: Path) -> None:
    config(tmp_path, "model = 'x'\nstore = 'y'\n[ask]\nmax-count = 1\n[pots.list]\nstore = 'z'").check(TREE)


def test_a_wrong_value_says_where_it_stands(tmp_path: Path) -> None:
    where = rf"max-count in {tmp_path / 'c.toml'}"
    with pytest.raises(ConfigError, match=rf"{where} is '0': use at least 1"):
        config(tmp_path, "max-count = 0").find(COUNT, ())
    with pytest.raises(ConfigError, match="INFINIPOT_MAX_COUNT is 'x': use a whole number"):
        Config({"INFINIPOT_MAX_COUNT": "x"}).find(COUNT, ())


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not TOML \(.*line 1"):
        config(tmp_path, "= 4")
    with pytest.raises(ConfigError, match=r"INFINIPOT_CONFIG is '.*none', and there is no such file"):
        Config.load({"INFINIPOT_CONFIG": str(tmp_path / "none")})
    with pytest.raises(ConfigError, match="cannot read"):
        Config.load({"INFINIPOT_CONFIG": str(tmp_path)})
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        Config.load({"INFINIPOT_CONFIG": str(tmp_path / "c.toml")})


def test_a_folder_one_works_in_chooses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("infinipot.toml", "config.toml", ".infinipot.toml"):
        (tmp_path / name).write_text("model = 'stranger/model'")
    monkeypatch.chdir(tmp_path)
    assert Config.load({}).path is None
    assert config_path({"INFINIPOT_CONFIG": "infinipot.toml"}) == Path("infinipot.toml")


def test_variables_of_others_are_left_alone_and_slips_are_told() -> None:
    told = Config(
        {"INFINIPOT_SERVICE_HOST": "1", "INFINIPOT_HOME": "x", "INFINIPOT_MODLE": "y", "MODEL": "z"}
    )
    assert told.strangers(TREE) == ["INFINIPOT_MODLE is no option: did you mean INFINIPOT_MODEL?"]


def test_the_command_line_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Settings] = []
    monkeypatch.setattr(serving, "run_server", lambda settings, given: served.append(settings))
    (tmp_path / "c.toml").write_text("capacity = 512\nport = 1\n[serve]\nslots = 5\nport = 2\nqueue = 7\n")
    monkeypatch.setenv("INFINIPOT_CONFIG", str(tmp_path / "c.toml"))
    monkeypatch.setenv("INFINIPOT_SLOTS", "4")
    CliRunner().invoke(app, ["serve", "--capacity", "256"], catch_exceptions=False)
    (one,) = served
    assert (one.capacity, one.slots, one.port, one.queue) == (256, 4, 2, 7)
    assert one.conversations == Settings().conversations


def test_every_option_of_every_command_has_its_variable_and_its_key(tmp_path: Path) -> None:
    """None of a command's options is left out, and each one's own variable reaches it."""
    words = {"int": "7", "float": "0.5", "bool": "true", "str": "x", "Path": "x"}
    commands = {name: one for name, one in every_command().items() if name and not hasattr(one, "commands")}
    for name, command in commands.items():
        declared = {option.name: option for option in options_of(command)}
        shown = {one.name.rstrip("_") for one in command.params if one.param_type_name == "option"}
        assert shown - {"help"} == set(declared), name
        for option in declared.values():
            text = option.choices[0] if option.choices else words[option.kind.__name__]
            text = f"{option.least:g}" if option.least and option.kind in (int, float) else text
            told = Config({f"INFINIPOT_{option.name.upper()}": text}).find(option, name.split())
            filed = Config({}, tmp_path, {option.name: text}).find(option, name.split())
            assert told is not None, (name, option.name)
            assert filed is not None, (name, option.name)
            assert told.value == filed.value, (name, option.name)


def test_options_show_where_each_value_comes_from(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("capacity = 512\n")
    here = {
        "INFINIPOT_CONFIG": str(tmp_path / "c.toml"),
        "INFINIPOT_SLOTS": "4",
        "INFINIPOT_API_KEY": "secret-1",
    }
    done = run("options", "serve", "--json", **here)
    document = json.loads(done.stdout)
    rows = {row["key"]: row for row in document["options"]}
    assert document["file"] == str(tmp_path / "c.toml")
    assert (rows["slots"]["value"], rows["slots"]["from"]) == (4, "INFINIPOT_SLOTS")
    assert (rows["capacity"]["value"], rows["capacity"]["from"]) == (
        512,
        f"capacity in {tmp_path / 'c.toml'}",
    )
    assert (rows["queue"]["value"], rows["queue"]["from"]) == (32, "default")
    assert rows["max-upload"]["variable"] == "INFINIPOT_MAX_UPLOAD"
    assert b"secret-1" not in done.stdout
    plain = run("options", "models", "list", **here)
    assert b"INFINIPOT_JSON" in plain.stdout
    every = json.loads(run("options", "--json").stdout)["options"]
    assert {"serve", "ask", "eval", "pots import"} <= {row["command"] for row in every}
    wrong = run("options", "sevre")
    assert (wrong.returncode, b"did you mean 'serve'?" in wrong.stderr) == (2, True)


def test_who_typed_nothing_is_told_where_a_refused_value_comes_from(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a text")
    done = run(
        "ask",
        "--file",
        str(tmp_path / "t.txt"),
        "what?",
        INFINIPOT_RECIPE="swa",
        INFINIPOT_CATALYST="general",
    )
    assert done.returncode == 2
    assert b"(given by INFINIPOT_CATALYST)" in done.stderr
    assert done.stderr.count(b"\n") == 1
