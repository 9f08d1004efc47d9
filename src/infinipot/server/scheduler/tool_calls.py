"""Calls of functions in a model's answer: found as the text comes, and written back as the model writes them.

Qwen's and Hermes' form: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`; and a bare JSON object,
in a code block or not, which is what small models write where they mean the same.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infinipot.errors import InputError
from infinipot.reading.grammar import LONGEST, SPACES, Grammar
from infinipot.text.detokenize import overlap
from infinipot.text.tokenizer import Tools

OPEN, CLOSE = "<tool_call>", "</tool_call>"
# As `json.dumps` writes and chat templates tell earlier calls: so a conversation goes on in its pot.
CANONICAL = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# Text that is forced is written by the tokenizer's own split, in which a mark is several tokens. A line break
# that may stand before the mark leaves the choice to the model, which knows the mark as one token.
_CLOSE = r"CLOSE: /\n\n?<\/tool_call>/" "\n"
_MARKED = r"call: OPEN body CLOSE" "\n" r"OPEN: /\n?<tool_call>\n/" "\n" + _CLOSE
_BARE = ("{", "```")  # how an answer begins that may be a call without its marks
_FENCE = re.compile(r"```\w*")


@dataclass(frozen=True)
class Call:
    """A function that the model wants to be called."""

    name: str
    arguments: str  # a JSON object


class CallParser:
    """Text that comes piece by piece, as text to give out and whole calls; what is no call stays text."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held, self._inside, self._begun = "", False, False
        self.calls = 0

    def push(self, text: str) -> Iterator[str | Call]:
        """Take some text; yield what no later text can change."""
        self._held += text
        while True:
            if self._inside:
                before, mark, after = self._held.partition(CLOSE)
                if not mark:
                    return
                self._inside, self._held = False, after
                yield self._call(before) or OPEN + before + CLOSE
                continue
            before, mark, after = self._held.partition(OPEN)
            if mark:
                self._inside, self._held, self._begun = True, after, True
                yield from [before.rstrip()] if before.strip() else []
                continue
            yield from self._text()
            return

    def flush(self) -> Iterator[str | Call]:
        """Yield what was held back."""
        held, self._held = self._held, ""
        if self._inside:
            yield self._call(held) or OPEN + held
        elif not self._begun and (call := self._call(_unfenced(held))):
            yield call
        elif held.strip() or not self.calls:
            yield held

    def _text(self) -> Iterator[str]:
        """Yield text that begins no call, without the spaces at its end, which may be before one."""
        start = self._held.lstrip()
        if not self._begun and any(start.startswith(mark) or mark.startswith(start) for mark in _BARE):
            return
        safe = len(self._held) - overlap(self._held, OPEN)
        safe = len(self._held[:safe].rstrip())
        if safe:
            text, self._held, self._begun = self._held[:safe], self._held[safe:], True
            yield text

    def _call(self, text: str) -> Call | None:
        try:
            told = json.loads(text)
            arguments = told.get("arguments", told.get("parameters", {})) if isinstance(told, dict) else None
            whole = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
            whole.encode()  # half of a character cannot be sent
        except (ValueError, RecursionError):
            return None
        if not isinstance(arguments, dict) or not isinstance(name := told.get("name"), str):
            return None
        if name not in self._names:
            return None
        self.calls += 1
        return Call(name, whole)


def _unfenced(text: str) -> str:
    found = _FENCE.match(text := text.strip())
    return text[found.end() :].removesuffix("```") if found else text


def as_text(content: str, calls: Iterable[Call]) -> str:
    """Return an earlier answer with calls as the model wrote it."""
    told = [f'{OPEN}\n{{"name": {json.dumps(c.name)}, "arguments": {c.arguments}}}\n{CLOSE}' for c in calls]
    return "\n".join([content, *told] if content else told)


def forced(tools: Tools, several: bool, otherwise: Mapping[str, Any] | None = None) -> Grammar:
    """Return the grammar of an answer that calls these functions, once or more, or is JSON of a schema."""
    calls = 'call ("\\n" call)*' if several else "call"
    calls += "" if otherwise is None else " | other"
    rules = f"start: {calls}\n{_MARKED}body: %json {_body(tools)}\n"
    return Grammar.lark(rules + ("" if otherwise is None else f"other: %json {_told(otherwise)}\n"))


def free_or_called(tools: Tools) -> Grammar:
    """Return the grammar of any text in which each call is one of these functions with fitting arguments."""
    rules = f'call: head "\\n" body CLOSE\nhead[lazy]: TEXT "{OPEN}"\nend: TEXT\nTEXT: /(.|\\n)*/\n{_CLOSE}'
    return Grammar.lark(f"%llguidance {{}}\nstart: call* end\n{rules}body: %json {_body(tools)}\n")


def _body(tools: Tools) -> str:
    every = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool["function"]["name"]},
                "arguments": tool["function"].get("parameters") or {"type": "object"},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    return _told({"anyOf": every} if len(every) > 1 else every[0], CANONICAL)


def _told(schema: Mapping[str, Any], spaces: Mapping[str, Any] = SPACES) -> str:
    text = json.dumps({**schema, "x-guidance": spaces})
    if len(text) > LONGEST:
        raise InputError(f"the schemas are over {LONGEST:,} characters: give smaller ones")
    return text
