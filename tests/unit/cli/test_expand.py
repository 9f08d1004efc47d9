"""From declared options to a command: names, types, defaults, bounds, and what the user gave."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from commands import run
from doc_pages import every_command
from infinipot.cli import given as from_given
from infinipot.cli.expand import Given, flag, with_options, worded
from infinipot.core.config import PotConfig
from infinipot.errors import ConfigError
from infinipot.recipes.option import Option
from infinipot.recipes.options import ANSWER, DECLARED, FORMAT, METHOD, RECALLING, SIZES, changed

OPTIONS = (
    Option("count", int, 3, "How many, see `text`.", least=1, most=9),
    Option("text", str, None, "A text.", short="t", shown="none of `these`"),
    Option("kind", str, None, "A kind.", choices=("one", "other")),
    Option("part", str, None, "Parts.", many=True),
    Option("quick", bool, True, "Quick."),
    Option("as_is", bool, False, "As it is."),
    Option("place", Path, None, "A place."),
)
found: list[tuple[str, Given]] = []


@with_options(*OPTIONS)
def command(name: Annotated[str, typer.Argument()], *, given: Given) -> None:
    """A command."""
    found.append((name, given))


def call(*words: str, **environment: str) -> Any:
    app = typer.Typer()
    app.command()(command)
    found.clear()
    return CliRunner().invoke(app, list(words), env=environment)


def test_a_command_gets_every_option_by_name() -> None:
    assert call("x").exit_code == 0
    ((name, given),) = found
    assert name == "x"
    assert given.values == {option.name: option.default for option in OPTIONS}
    assert given.typed == frozenset()
    words = [
        "--count",
        "4",
        "-t",
        "a",
        "--kind",
        "one",
        "--part",
        "p",
        "--part",
        "q",
        "--no-quick",
        "--as-is",
    ]
    assert call("x", *words, INFINIPOT_PLACE="there").exit_code == 0
    given = found[0][1]
    assert given.of(OPTIONS[:4]) == {"count": 4, "text": "a", "kind": "one", "part": ["p", "q"]}
    assert (given["quick"], given["as_is"], given["place"]) == (False, True, Path("there"))
    assert given.typed == {option.name for option in OPTIONS[:-1]}
    assert given.where == {"place": "INFINIPOT_PLACE"}
    assert given.chosen("place")
    assert given.chosen("count")


def test_what_is_out_of_bounds_is_refused_with_its_field() -> None:
    error = call("x", "--count", "10").exception
    assert isinstance(error, ConfigError)
    assert (str(error), error.field) == ("`count` is 10: use 1 to 9", "count")
    assert call("x", "--kind", "third").exit_code == 2
    assert "--no-as-is" in call("x", "--no-as-is").output


def test_only_options_are_spelt_as_flags() -> None:
    assert flag("max_new_tokens") == "--max-new-tokens"
    assert worded("use `count` 3, not `all`, as `infinipot ask` does") == (
        "use --count 3, not `all`, as `infinipot ask` does"
    )
    assert "How many, see --text." in " ".join(call("--help").output.split())


def test_every_size_of_a_pot_is_an_option_of_every_command_that_reads() -> None:
    """What adding an option must reach without another line: commands, grid, bench."""
    assert {size.name for size in fields(PotConfig)} | {"step"} == set(SIZES)
    commands = every_command()
    for name in ("ask", "read", "chat", "eval", "bench"):
        flags = {word for option in commands[name].params for word in option.opts}
        # What is timed has the general catalyst, and is asked nothing that passages could be found for.
        left_out = {"catalyst", *RECALLING} if name == "bench" else set()
        assert set(DECLARED) - left_out == {option for option in DECLARED if flag(option) in flags}, name


def given_of(**values: Any) -> Given:
    return Given({option.name: option.default for option in (*METHOD, FORMAT, *ANSWER)} | values)


def test_a_new_size_passes_through_to_the_pot(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that is not known today, declared once, reaches the recipe and is checked on its way."""
    monkeypatch.setitem(SIZES, "opening", replace(SIZES["opening"], least=2))
    monkeypatch.setitem(DECLARED, "opening", SIZES["opening"])
    assert from_given.recipe_of(given_of(opening=3)).config.opening == 3
    with pytest.raises(ConfigError, match="`opening` is 1: use at least 2"):
        from_given.recipe_of(given_of(opening=1))


def test_settings_of_the_recipe_and_the_answer() -> None:
    recipe = from_given.recipe_of(given_of(recipe="h2o", set=["heavy=64"], capacity=512))
    assert (recipe.knobs, recipe.config.capacity, recipe.catalyst) == ({"heavy": 64}, 512, "general")
    assert from_given.recipe_of(given_of(), "question").catalyst == "question"
    longer = Given({option.name: option.default for option in changed(ANSWER, max_new_tokens=256)})
    assert from_given.generation_of(longer).max_new_tokens == 256


def test_numbers_are_read_as_in_a_variable_and_have_bounds() -> None:
    assert "`count` is 2048: use 1 to 9" in str(call("x", "--count", "2k").exception)
    assert call("x", "--count", "4").exit_code == 0
    for words, says in {
        ("--capacity", "nope"): "use a whole number such as 2048 or 4k",
        ("--capacity", "9" * 20): "use at most 99999999",
        ("--pool", "9" * 13): "use at most 99999",
        ("--threads", "100000"): "use 1 to 512",
        ("--capacity", "9" * 400 + "k"): "use a whole number such as 2048 or 4k",
    }.items():
        assert says in run("ask", "-f", "x", *words, "Q").stderr.decode()
