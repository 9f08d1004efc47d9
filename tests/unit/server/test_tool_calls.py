"""Calls in an answer's text: found however the text is cut, and followed by grammars."""

from __future__ import annotations

import json
import random
import time

import pytest

from infinipot.errors import InputError
from infinipot.server.scheduler.tool_calls import Call, CallParser, as_text, forced, free_or_called
from infinipot.testing.tokenizer import END, ByteTokenizer

TOKENIZER = ByteTokenizer()
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Öslo"}}\n</tool_call>'
FOUND = Call("weather", '{"city": "Öslo"}')


def parsed(pieces: list[str], names: tuple[str, ...] = ("weather", "now")) -> list[str | Call]:
    parser = CallParser(names)
    found = [part for piece in pieces for part in parser.push(piece)] + list(parser.flush())
    joined: list[str | Call] = []
    for part in found:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there.", ["Hello there."]),
        ("", [""]),
        (CALL, [FOUND]),
        (f"\n{CALL}\n", [FOUND]),
        (f"Let me see.\n{CALL}", ["Let me see.", FOUND]),
        (f'{CALL}\n<tool_call>{{"name": "now", "arguments": {{}}}}</tool_call>', [FOUND, Call("now", "{}")]),
        (CALL.removesuffix("</tool_call>"), [FOUND]),  # cut by a stop
        ('{"name": "weather", "arguments": {"city": "Öslo"}}', [FOUND]),
        ('```json\n{"name": "weather", "parameters": {"city": "Öslo"}}\n```', [FOUND]),
        ('{"name": "other", "arguments": {}}', ['{"name": "other", "arguments": {}}']),
        ("{1, 2} is a set", ["{1, 2} is a set"]),
        ("<tool_call>nonsense</tool_call>", ["<tool_call>nonsense</tool_call>"]),
        ("<tool_call>[1]</tool_call> and", ["<tool_call>[1]</tool_call> and"]),
        ('<tool_call>{"name": ["weather"]}</tool_call>', ['<tool_call>{"name": ["weather"]}</tool_call>']),
        ("a < b <tool", ["a < b <tool"]),
        ("I have {} and  \n spaces  ", ["I have {} and  \n spaces  "]),
    ],
)
def test_calls_are_found_however_the_text_is_cut(text: str, expected: list[str | Call]) -> None:
    assert parsed([text]) == expected
    assert parsed(list(text)) == expected
    for seed in range(10):
        at = sorted(random.Random(seed).sample(range(len(text) + 1), min(3, len(text) + 1)))
        assert parsed([text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]) == expected


@pytest.mark.parametrize("begin", ["```json", "```", "<tool_call>", "{"])
def test_no_answer_takes_long(begin: str) -> None:
    started, text = time.monotonic(), f"{begin} x{' ' * 200_000}a"
    assert parsed([text]) == [text]
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "told",
    [
        '{"name": {"weather": 1}, "arguments": {}}',
        '{"name": ["weather"], "arguments": {}}',
        '{"name": null, "arguments": {}}',
        '{"name": "weather", "arguments": {"city": "\\ud800"}}',
        '{"name": "weather", "arguments": {"\\udfff": 1}}',
        '{"name": "weather", "arguments": {"days": NaN}}',
        '{"name": "weather", "arguments": {"days": -Infinity}}',
        '{"name": "weather", "arguments": {"days": 1e999}}',
        '{"name": "weather", "arguments": {"days": ' + "[" * 20_000 + "]" * 20_000 + "}}",
        '{"name": "weather", "arguments": {"days": ' + "[" * 20_000,
    ],
)
def test_what_json_cannot_carry_on_is_text_and_no_call(told: str) -> None:
    for text in (told, f"<tool_call>{told}</tool_call>", f"<tool_call>{told}", f"```json\n{told}\n```"):
        parser = CallParser({"weather"})
        assert "".join(map(str, [*parser.push(text), *parser.flush()])) == text
        assert parser.calls == 0


def test_text_is_given_out_as_it_comes() -> None:
    parser = CallParser(("weather",))
    assert list(parser.push("Hello")) == ["Hello"]
    assert list(parser.push(" <tool")) == []
    assert list(parser.push("box")) == [" <toolbox"]


def test_a_call_goes_back_as_it_came() -> None:
    assert as_text("", [FOUND]) == CALL
    assert as_text("See:", [FOUND, FOUND]) == f"See:\n{CALL}\n{CALL}"
    assert parsed([as_text("", [FOUND])]) == [FOUND]


def _follows(grammar: object, text: str) -> bool:
    constraint = grammar.constraint(TOKENIZER, 260)  # type: ignore[attr-defined]
    for token in TOKENIZER.encode(text):
        if not constraint.allowed(260)[token]:
            return False
        constraint.take(token)
    return bool(constraint.allowed(260)[END])


def test_a_forced_call_is_one_of_the_functions() -> None:
    one, several = forced([WEATHER, NOW], False), forced([WEATHER, NOW], True)
    for grammar in (one, several):
        assert _follows(grammar, CALL)
        assert _follows(grammar, '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
        assert not _follows(grammar, "Hello")
        assert not _follows(grammar, CALL.replace("weather", "other"))
        assert not _follows(grammar, CALL.replace("city", "town"))
        assert not _follows(grammar, CALL[:-3])
    assert _follows(several, f"{CALL}\n{CALL}")
    assert not _follows(one, f"{CALL}\n{CALL}")


def test_strict_calls_fit_and_text_is_free() -> None:
    grammar = free_or_called([WEATHER, NOW])
    for text in ("Hello, <b>you</b>.", CALL, f"Let me see.\n{CALL}\n{CALL}", ""):
        assert _follows(grammar, text), text
    for text in (CALL.replace("weather", "other"), f"See {CALL.replace('city', 'town')}"):
        assert not _follows(grammar, text), text


def test_a_function_s_schema_that_cannot_be_followed() -> None:
    bad = json.loads(json.dumps(WEATHER).replace('"integer"', '"nonsense"'))
    with pytest.raises(InputError, match="cannot be followed"):
        forced([bad], False).constraint(TOKENIZER, 260)
