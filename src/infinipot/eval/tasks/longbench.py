"""LongBench v1 (Bai et al., 2023): 21 tasks, and LongBench-E, 13 of them with even lengths.

Everything is the official one, typos included (`longbench_prompts.json`, from THUDM/LongBench, MIT). A data
folder's own `dataset2prompt.json` and `dataset2maxlen.json` go before.
"""

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from infinipot.common.suggest import hint
from infinipot.errors import ConfigError, InputError
from infinipot.eval.tasks import metrics
from infinipot.eval.tasks.jsonl import DATA, FileTask, Row, RowError, data_folder, find_file, official
from infinipot.eval.tasks.task import BadRow, Count, Example, Several, TaskType
from infinipot.recipes.option import Option

HUB = "THUDM/LongBench"
HOW = f"unpack data.zip of https://huggingface.co/datasets/{HUB} and name the folder with its .jsonl files"
BUCKETS = ("0-4k", "4-8k", "8k+")
FEW_SHOT, CODE, ALL = "few-shot", "code", "all"


@dataclass(frozen=True)
class Description:
    """What is official about one task."""

    kind: str  # single-document QA, multi-document QA, summarization, few-shot, synthetic, code
    language: str
    metric: str  # a name in `metrics.METRICS`, or classification
    max_tokens: int
    e: bool  # whether LongBench-E has it
    prompt: str  # with {context} once and perhaps {input}

    @property
    def asks(self) -> bool:
        """Whether a row's input is a question about its context: the paper's catalyst (CaP-Q) there."""
        return self.kind.endswith("QA")


@dataclass(frozen=True)
class LongBench(FileTask):
    """One task by its official name; `_e` at its end means LongBench-E. Without a folder rows are the hub's.

    A file may hold rows of a task and of its LongBench-E twin: the row's `dataset` says which it is.
    """

    how = HOW

    def __post_init__(self) -> None:
        if self.name not in names():
            remedy = hint(self.name, names())
            raise ConfigError(f"there is no LongBench task '{self.name}'", field="tasks", remedy=remedy)
        if self.folder is not None:
            super().__post_init__()
        _ = self.description  # a folder's broken prompts are found now, not in the middle of a run

    @property
    def base(self) -> str:
        """The name without `_e`."""
        return self.name.removesuffix("_e")

    @cached_property
    def description(self) -> Description:
        """What is official, or what the folder says instead."""
        found = descriptions()[self.base]
        if self.folder is None:
            return found
        prompt = _setting(self.folder / "dataset2prompt.json", self.base, found.prompt)
        if prompt.count("{context}") != 1:
            problem = f"{self.folder}/dataset2prompt.json, {self.base}: {{context}} must be there once"
            raise InputError(problem)
        tokens = _setting(self.folder / "dataset2maxlen.json", self.base, found.max_tokens)
        return replace(found, prompt=prompt, max_tokens=tokens)

    def file(self) -> Path:
        """Return the file of the name, or that of the name without `_e`."""
        return find_file(self.folder, list(dict.fromkeys((f"{self.name}.jsonl", f"{self.base}.jsonl"))), HOW)

    def examples(self, count: Count) -> Iterator[Example | BadRow]:
        """Yield the rows in their order; InputError if none is this task's."""
        found = None
        for found in super().examples(count):
            yield found
        if found is None:
            raise InputError(f"{self.folder or HUB} has no row of {self.name}: {HOW}")

    def score(self, prediction: str, example: Example) -> float:
        """Return the best official score over the references."""
        if self.description.kind == FEW_SHOT:
            prediction = metrics.first_line(prediction)
        if self.description.metric == "classification":
            return max(metrics.classification(prediction, a, example.classes) for a in example.answers)
        return max(metrics.METRICS[self.description.metric](prediction, a) for a in example.answers)

    def example(self, row: Row) -> Example:
        """Make an example of a row; RowError if the row does not allow it."""
        known, dataset, length = self.description, row.text("dataset"), row.integer("length")
        if dataset not in (self.base, f"{self.base}_e"):
            raise RowError(f"'dataset' should be '{self.base}' or '{self.base}_e', not '{dataset}'")
        question, language = row.text("input", blank=not known.asks), row.text("language")
        before, after = (part.replace("{input}", question) for part in known.prompt.split("{context}"))
        return Example(
            id=row.text("_id", blank=False),
            text=before + row.text("context", blank=False),
            question=after,
            answers=row.strings("answers"),
            new_tokens=known.max_tokens,
            query=question if known.asks else "",
            bare=True,
            chat=False if known.kind in (FEW_SHOT, CODE) else None,
            one_line=self.base == "samsum",
            facts={"dataset": self.name, "length": length, "bucket": bucket(length), "language": language},
            classes=row.strings("all_classes") if known.metric == "classification" else (),
        )

    def rows(self) -> Iterator[Row | BadRow]:
        """Yield this task's rows as they are."""
        if self.folder is None:
            yield from _hub_rows(self.name)
            return
        twin = self.base if self.name.endswith("_e") else f"{self.base}_e"
        shared = self.file().name.startswith(f"{self.base}.")
        for row in super().rows():
            if not (shared and isinstance(row, Row) and row.fields.get("dataset") == twin):
                yield row


@cache
def descriptions() -> Mapping[str, Description]:
    """Return what is official about each of the 21 tasks."""
    return {name: Description(**found) for name, found in official("longbench_prompts.json").items()}


@cache
def names() -> tuple[str, ...]:
    """Return the names of the 21 tasks and of LongBench-E's 13."""
    return (*descriptions(), *(f"{name}_e" for name, found in descriptions().items() if found.e))


def present(folder: Path) -> tuple[str, ...]:
    """Return the names of the tasks a folder has rows of."""
    there = {path.name.partition(".")[0] for path in data_folder(folder, HOW).glob("*.jsonl*")}
    some = [name for name in names() if name in there or name.removesuffix("_e") in there]
    return tuple(n for n in some if any(isinstance(row, Row) for row in LongBench(n, folder).rows()))


def bucket(length: int) -> str:
    """Return the LongBench-E bucket of a row's length."""
    return BUCKETS[(length >= 4000) + (length >= 8000)]


def _setting(path: Path, name: str, default: Any) -> Any:
    if not path.is_file():
        return default
    try:
        found = json.loads(path.read_text("utf-8")).get(name, default)
    except (OSError, ValueError, AttributeError) as error:
        problem = f"{path} is not the official file's form ({error}): mend it or take it away"
        raise InputError(problem) from error
    if type(found) is not type(default):
        raise InputError(f"{path}, {name}: should be {type(default).__name__}, not {type(found).__name__}")
    return found


def _hub_rows(name: str) -> Iterator[Row]:
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise ConfigError(f"no data folder given: {HOW}, or pip install datasets to fetch it") from error
    try:
        # Not by the dataset's name: that runs its script, which `datasets` no longer does from version 4 on.
        file = f"zip://data/{name}.jsonl::hf://datasets/{HUB}/data.zip"
        found = datasets.load_dataset("json", data_files={"test": file}, split="test")
    except Exception as error:  # whatever the network, the hub or the library's version brings
        raise InputError(f"{HUB} does not load ({' '.join(str(error).split())}): {HOW}") from error
    for line, fields in enumerate(found, 1):
        yield Row(f"{HUB} {name}", line, fields)


def _make(options: Mapping[str, Any]) -> Several:
    asked, even, folder = options["tasks"], bool(options["e"]), options["data"]
    if asked in ((), (ALL,)):
        there = names() if folder is None else present(folder)
        asked = [name for name in there if asked or name.endswith("_e") == even]
        if not asked:
            raise InputError(f"{folder} has no rows of LongBench: {HOW}")
    elif even:
        asked = [f"{name.removesuffix('_e')}_e" for name in asked]
    return Several("longbench", [LongBench(name, folder) for name in asked])


TASK = TaskType(
    "longbench",
    "LongBench and LongBench-E: questions, summaries, few-shot, code.",
    (
        DATA,
        Option("tasks", str, None, "Official names; `all` adds LongBench-E.", many=True),
        Option("e", bool, None, "LongBench-E.", shown="off"),
    ),
    _make,
    catalyst="by-task",
    tables=("task", "twins", "buckets"),
)
