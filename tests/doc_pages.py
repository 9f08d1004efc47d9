"""The documentation as data: pages, their blocks of code, commands in them, tables made from the program.

A block of code is preceded by what the tests must know of it, each in a comment of its own:
`not run: REASON`, `background` for a server that stays until the page's end, `prints: TEXT`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from infinipot.cli.expand import options_of
from infinipot.cli.main import app
from infinipot.models import catalog

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CODE = frozenset({"bash", "python"})
PLAIN = frozenset({"", "json", "text", "toml"})
REASONS = (
    "needs a GPU",
    "downloads over 200 MB",
    "needs a running cluster",
    "needs the internet",
    "takes some minutes",
    "would run these tests again",
    "a file of the package",  # shown as it would stand there; such files are tested where they are
    "needs a model of your own",  # tests/e2e/test_smollm2.py does the same with ours
)
_COMMENT = re.compile(r"<!-- (.*?) -->")
_FENCE = re.compile(r"\s*```(\w*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    code: str
    notes: tuple[str, ...]  # comments right above it

    @property
    def where(self) -> str:
        """For people."""
        return f"{self.page}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why it is not run."""
        return self._said("not run: ")

    @property
    def prints(self) -> str:
        """What its output must have in it."""
        return self._said("prints: ") or ""

    @property
    def stays(self) -> bool:
        """It is a server."""
        return "background" in self.notes

    @property
    def runs(self) -> bool:
        """The tests must run it."""
        return self.language in CODE and self.reason is None

    def _said(self, start: str) -> str | None:
        return next((note.removeprefix(start) for note in self.notes if note.startswith(start)), None)


def pages() -> list[Path]:
    """Every page whose code is looked at."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found: list[Block] = []
    notes: list[str] = []
    begun: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        fence = _FENCE.fullmatch(line.rstrip())
        if begun is None and fence:
            begun, lines = (number, fence[1]), []
        elif begun is not None and fence and not fence[1]:
            code = "\n".join(lines) + "\n"
            found.append(Block(str(page.relative_to(ROOT)), *begun, code, tuple(notes)))
            begun, notes = None, []
        elif begun is not None:
            lines.append(line)
        elif comment := _COMMENT.fullmatch(line.strip()):
            notes.append(comment[1])
        else:
            notes = []
    assert begun is None, f"{page}: a block does not end"
    return found


def prose(page: Path) -> str:
    """A page without its blocks."""
    return re.sub(r"^\s*```.*?^\s*```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def commands(code: str) -> Iterator[list[str]]:
    """The words of every `infinipot` command in a shell script."""
    for line in code.replace("\\\n", " ").splitlines():
        if "infinipot " not in line:
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word[0] not in "|;&<>":
                words.append(word)
                continue
            if words[:1] == ["infinipot"]:
                yield words[1:]
            words = []


def found(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, and the words that are left for it."""
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, f"there is no command '{words[0]}'"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def every_command() -> dict[str, Any]:
    """All commands by their names."""
    named: dict[str, Any] = {}
    waiting = [("", typer.main.get_command(app))]
    for name, command in waiting:
        named[name] = command
        inner = getattr(command, "commands", {})
        waiting.extend((f"{name} {word}".strip(), one) for word, one in inner.items())
    return named


def options_table(name: str) -> str:
    """The options of a command, in the order of its help."""
    options = [one for one in found(name.split())[0].params if one.param_type_name == "option"]
    variables = {option.name: option.in_environment for option in options_of(found(name.split())[0])}
    heads = ["option", "variable", "default", "what"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in options:
        names = " / ".join(f"`{word}`" for word in [*one.opts, *one.secondary_opts])
        cells = [names, f"`{variables[one.name.rstrip('_')]}`", _default(one), _cell(one.help)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return _cell(option.show_default)
    if option.required:
        return "needed"
    if option.is_flag and option.secondary_opts:
        return f"`{option.opts[0] if option.default else option.secondary_opts[0]}`"
    return "" if option.default is None or option.is_flag else f"`{option.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def models_table() -> str:
    """The models that can be pulled by name."""
    lines = ["| alias | model | download | memory | licence | |", "|---|---|---|---|---|---|"]
    for one in catalog.RELEASES:
        size = f"{one.size / 1e6:,.0f} MB"
        held = f"{one.memory / 1e9:.1f} GB"
        lines.append(f"| `{one.alias}` | {one.title} | {size} | {held} | {one.licence} | {one.note} |")
    return "\n".join(lines)


_MADE = re.compile(r"<!-- (options: [\w ]+|models) -->\n(.*?)<!-- end of (?:options|models) -->", re.DOTALL)


def with_tables(text: str) -> str:
    """A page with its marked tables as the program has them."""

    def made(match: re.Match[str]) -> str:
        kind, _, name = match[1].partition(": ")
        table = options_table(name) if kind == "options" else models_table()
        return f"<!-- {match[1]} -->\n\n{table}\n\n<!-- end of {kind} -->"

    return _MADE.sub(made, text)
