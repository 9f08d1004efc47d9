"""Answers of JSON schemas from a real server, several at a time: how many parse and validate.

    python benchmarks/schemas.py --count 500 --out docs/results/schemas.json -- --model smollm2 --slots 8

What stands after `--` goes to `infinipot serve`. Every schema is bounded: a cut answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import openai

from served import Served


def closed(**properties: Any) -> dict[str, Any]:
    """A JSON object that has these properties and no others."""
    told = {"type": "object", "properties": properties, "required": list(properties)}
    return {**told, "additionalProperties": False}


NUMBER = {"type": "integer", "minimum": 0, "maximum": 150}
WORD = {"type": "string", "maxLength": 24}
CREW = closed(name=WORD)
SCHEMAS = {
    "flat": closed(name=WORD, age=NUMBER, sure={"type": "boolean"}),
    "enum": closed(sea={"enum": ["calm", "rough", "unknown"]}),
    "list": closed(names={"type": "array", "items": WORD, "minItems": 1, "maxItems": 3}),
    "nested": closed(ship=closed(name=WORD, crew={"type": "array", "items": CREW, "maxItems": 2})),
    "either": closed(place={"anyOf": [WORD, {"type": "null"}, closed(x=NUMBER)]}),
    "pattern": closed(day={"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}),
}
TEXT = "The keeper's name is Marlow, 61 years old. The sea was calm on the fourth of May 1899. "


def ask(client: Any, model: str, number: int) -> str:
    """Ask once; return what came of it."""
    name = list(SCHEMAS)[number % len(SCHEMAS)]
    form = {"type": "json_schema", "json_schema": {"name": name, "schema": SCHEMAS[name], "strict": True}}
    got = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"{TEXT * 3}\n\nTell what you know as JSON, number {number}."}],
        response_format=form,
        temperature=0.9 if number % 3 else 0.0,
        seed=number,
        max_tokens=250,
        extra_body={"keep": False},
    )
    if got.choices[0].finish_reason != "stop":
        return f"{name}: cut"
    try:
        jsonschema.validate(json.loads(got.choices[0].message.content), SCHEMAS[name])
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{name}: {type(error).__name__}"
    return "valid"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("serve", nargs="*", default=["--model", "smollm2", "--capacity", "1024"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Served(given.serve, Path(folder))
        try:
            server.wait()
            client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=3600)
            model, began = client.models.list().data[0].id, time.monotonic()
            with ThreadPoolExecutor(given.at_once) as pool:
                found = Counter(pool.map(lambda number: ask(client, model, number), range(given.count)))
            seconds = round(time.monotonic() - began, 1)
        finally:
            server.stop()
    told = {"command": server.command, "answers": given.count, "outcomes": dict(found), "seconds": seconds}
    given.out.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
