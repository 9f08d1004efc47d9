"""BABILong (Kuratov et al., 2024): bAbI's facts hidden in books; qa1 to qa5, the tasks it is reported on.

Prompts, labels and the comparison are the official ones (`babilong_prompts.json`, from booydar/babilong,
Apache-2.0). Files are called `4k_qa1.jsonl` (or .xz, .gz) and hold `input`, `question` and `target`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from infinipot.common.suggest import hint
from infinipot.errors import ConfigError, InputError
from infinipot.eval.tasks.jsonl import DATA, FileTask, Row, RowError, data_folder, official
from infinipot.eval.tasks.task import Example, Several, TaskType
from infinipot.recipes.option import Option

HOW = "get https://huggingface.co/datasets/RMT-team/babilong and save each part as LENGTH_TASK.jsonl"
NEW_TOKENS = 20
prompts = partial(official, "babilong_prompts.json")  # by the name of the task
_FILE = re.compile(r"(\w+)_(qa\d+)\.jsonl(\.xz|\.gz)?")


@dataclass(frozen=True)
class BABILong(FileTask):
    """One file: a length and a task, such as `4k_qa1`."""

    how = HOW

    def __post_init__(self) -> None:
        length, _, task = self.name.rpartition("_")
        if not length or task not in prompts():
            problem = f"'{self.name}' is not a length and a BABILong task, such as 4k_qa1"
            raise ConfigError(problem, field="tasks", remedy=hint(task, prompts()))
        super().__post_init__()

    @property
    def prompt(self) -> Mapping[str, Any]:
        """What is official about the task: `instruction`, `examples`, `format` and `labels`."""
        return cast("Mapping[str, Any]", prompts()[self.name.rpartition("_")[2]])

    def score(self, prediction: str, example: Example) -> float:
        """1 if the first sentence names the target and no other label but those of the question, else 0."""
        said = prediction.lower().split(".")[0].split("<context>")[0].split("<example>")[0]
        labels = {label.lower() for label in self.prompt["labels"]}
        named = {label for label in labels if label in said and label not in example.query.lower()}
        return float(named == {example.answers[0].lower()})

    def example(self, row: Row) -> Example:
        """Make an example of a row; RowError if the row does not allow it."""
        target, asked = row.text("target", blank=False), row.text("question", blank=False).strip()
        prompt, (length, _, task) = self.prompt, self.name.rpartition("_")
        if target.lower() not in (label.lower() for label in prompt["labels"]):
            raise RowError(f"'target' is '{target}', which is no label of this task")
        before = (prompt["instruction"], prompt["examples"], prompt["format"], "<context>\n")
        text = "\n\n".join(before) + row.text("input", blank=False).strip()
        question = f"\n</context>\n\nQuestion: {asked}"
        name, facts = f"{self.name}-{row.line}", {"length": length, "task": task}
        return Example(name, text, question, (target,), NEW_TOKENS, asked, bare=True, facts=facts)


def _make(options: Mapping[str, Any]) -> Several:
    folder = data_folder(options["data"], HOW)
    matches = (_FILE.fullmatch(path.name) for path in folder.iterdir())
    there = {match.group(1, 2) for match in matches if match}
    lengths = options["lengths"] or sorted({n for n, _ in there}, key=lambda n: (n[-1:].lower(), len(n), n))
    tasks = options["tasks"] or sorted({task for _, task in there})
    names = [f"{length}_{task}" for length in lengths for task in tasks]
    if not names:
        raise InputError(f"{folder} has no BABILong files: {HOW}")
    return Several("babilong", [BABILong(name, folder) for name in names])


TASK = TaskType(
    "babilong",
    "bAbI's facts hidden in books.",
    (
        DATA,
        Option("tasks", str, None, "qa1 to qa5.", many=True),
        Option("lengths", str, None, "The lengths in the names of the files, e.g. 0k,4k.", many=True),
    ),
    _make,
)
