"""BABILong (Kuratov et al., 2024): bAbI's facts hidden in books; qa1 to qa5, the tasks it is reported on.

Prompts, labels and the comparison are the official ones (`babilong_prompts.json`, from booydar/babilong,
Apache-2.0). Files are called `4k_qa1.jsonl` (or .xz, .gz) and hold `input`, `question` and `target`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from infinipot.errors import ConfigError
from infinipot.eval.tasks.rows import BadRow, Row, RowError, find_file, from_rows, read_rows
from infinipot.eval.tasks.task import Count, Example

HOW = "get https://huggingface.co/datasets/RMT-team/babilong and save each part as LENGTH_TASK.jsonl"
NEW_TOKENS = 20


@dataclass(frozen=True)
class Prompt:
    """What is official about one task."""

    instruction: str
    examples: str
    format: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class BABILong:
    """One file: a length and a task, such as `4k_qa1`."""

    name: str
    folder: Path

    def __post_init__(self) -> None:
        length, _, task = self.name.rpartition("_")
        if not length or task not in prompts():
            near = difflib.get_close_matches(task, prompts(), n=1)
            hint = f"did you mean '{length or '4k'}_{near[0]}'?" if near else f"known: {', '.join(prompts())}"
            raise ConfigError(f"'{self.name}' is not a length and a BABILong task, such as 4k_qa1: {hint}")
        self._file()

    @property
    def prompt(self) -> Prompt:
        """What is official about its task."""
        return prompts()[self.name.rpartition("_")[2]]

    def examples(self, count: Count) -> Iterator[Example | BadRow]:  # noqa: ARG002 - rows have their length
        """Yield the rows in their order."""
        return from_rows(read_rows(self._file()), self._example)

    def score(self, prediction: str, example: Example) -> float:
        """1 if the first sentence names the target and no other label but those of the question, else 0."""
        said = prediction.lower().split(".")[0].split("<context>")[0].split("<example>")[0]
        labels = {label.lower() for label in self.prompt.labels}
        named = {label for label in labels if label in said and label not in example.query.lower()}
        return float(named == {example.answers[0].lower()})

    def _example(self, row: Row) -> Example:
        target, question = row.text("target", blank=False), row.text("question", blank=False).strip()
        if target.lower() not in (label.lower() for label in self.prompt.labels):
            raise RowError(f"'target' is '{target}', which is no label of this task")
        length, _, task = self.name.rpartition("_")
        prompt = self.prompt
        before = (prompt.instruction, prompt.examples, prompt.format, "<context>\n")
        return Example(
            id=f"{self.name}-{row.line}",
            text="\n\n".join(before) + row.text("input", blank=False).strip(),
            question=f"\n</context>\n\nQuestion: {question}",
            answers=(target,),
            new_tokens=NEW_TOKENS,
            query=question,
            bare=True,
            facts={"length": length, "task": task},
        )

    def _file(self) -> Path:
        return find_file(self.folder, [f"{self.name}.jsonl"], HOW)


@cache
def prompts() -> Mapping[str, Prompt]:
    """Return what is official about each task."""
    text = (files("infinipot.eval.tasks") / "babilong_prompts.json").read_text("utf-8")
    return {
        name: Prompt(**{**found, "labels": tuple(found["labels"])})
        for name, found in json.loads(text).items()
    }
