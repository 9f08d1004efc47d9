"""Ways to answer from a pot and passages, all asked after one reading of each text.

    python benchmarks/ways.py --data DIR --out ways --texts locomo-tune-0,longbench-tune-0,facts-tune-16k-0

DIR is as for `recall.py`. A text is SET-HALF-...: a conversation of `locomo` by its number, a quarter of
`longbench` (its question answering longer than the pot), `facts` and `essays` (pass keys) by their length and
which text, or at which depths. Every question is answered by the pot alone (`pure.pot`), and from passages
chosen by words (`words`), by the model's judgement of the best `JUDGED` by words (`judged`), by the same with
twice as many read at most (`many`), and, of planted facts and keys, by meaning where words find
little (`meant`): each beside the pot as `infinipot ask` has it (`.pot`), and without a pot (`.alone`).
With `--as-asked` it is answered in one way alone, as `infinipot ask` would on this device (`asked.pot`),
with `--meaning 48` as it would where the model of sentences is there.
OUT/TEXT.jsonl has a line a question: scores, answers, how likely the model found its first token and all of
them, and what was known before: telling words found, and the judgements. So a rule that takes one way or the
other can be tried on rows, of `tune` alone. The same command goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import recall
from infinipot import Generation, Recipe
from infinipot.engine import Engine, open_engine
from infinipot.eval.runner import Answer, Runner
from infinipot.eval.tasks.task import Example, Task, half, make
from infinipot.reading import recalled
from infinipot.reading.decode import DecodeBatch
from infinipot.reading.judge import MOST, NEAR, judge
from infinipot.recall.passages import Passage
from infinipot.recall.search import coverage, ranked, taken

JUDGED = 32  # passages
PARTS = 4  # of LongBench
TOGETHER = 6  # questions that are answered at once
Told = dict[str, Any]
Looked = tuple[Told, dict[str, list[Passage]]]
Look = Callable[[Example], Looked]


def questions(name: str, args: argparse.Namespace, count: Callable[[str], int]) -> tuple[Task, list[Example]]:
    """The questions of a text, by its name."""
    kind, part, *which = name.split("-")
    if kind == "facts":
        size, number = which[0], int(which[1])
        many = {"texts": number + 1} | ({} if size == "16k" else {"planted": 25})
        given = {"data": args.data / kind, "hay": str(args.data / "books"), "part": part, "lengths": size}
        task = make(kind, {**given, **many}, 0)
        return task, [one for one in _examples(task, count) if one.facts["text"] == number]
    if kind == "essays":
        depths = {"lengths": which[0], "depths": which[1].replace("+", ",")}
        task = make("needle", {"hay": str(args.data / kind), "trials": 1, **depths}, 0)
        return task, [*_examples(task, count)]
    options = {"data": args.data / kind} | ({"tasks": recall.QA} if kind == "longbench" else {})
    task = make(kind, options, 0)
    own = [one for one in _examples(task, count) if half(one.id) == part]
    if kind == "longbench":  # counting tokens takes long
        return task, [one for one in own[int(which[0]) :: PARTS] if count(one.text) > args.capacity]
    talks = [list(some) for _, some in groupby(own, key=lambda one: one.facts["conversation"])]
    return task, talks[int(which[0])] if int(which[0]) < len(talks) else []


def _examples(task: Task, count: Callable[[str], int]) -> Iterator[Example]:
    return (one for one in task.examples(count) if isinstance(one, Example))


class Asking:
    """Readers for every way, and one whose pot has read the text."""

    def __init__(self, task: Task, engine: Engine, capacity: int) -> None:
        sizes: Told = {"capacity": capacity, "format": engine.format, "meaning": 0, "judge": 0}
        self.task, self.text, self.runners = task, "", (Runner(engine, 2), Runner(engine, 2))
        self.recipes = Recipe.named(**sizes), Recipe.named("passages", **sizes)
        self.read, self.readers = self._reader(False), (list[Any](), list[Any]())
        self.known = self.read
        self.means = getattr(engine.model, "meaning", None) is not None

    def _reader(self, alone: bool) -> Any:
        # As `infinipot eval` has them: readers of one runner share what is captured.
        return self.runners[alone]._reader(self.recipes[alone], "", False)

    def take_in(self, example: Example) -> None:
        """Read a text, unless it was the last one."""
        if self.text is not example.text:
            self.read.clear()
            self.read.set_question(bare=example.bare)
            self.read.read(example.text)
            self.text, self.known = example.text, self.read.fork()

    def answered(self, some: Sequence[Example], look: Look) -> list[Told]:
        """Answer questions, each after passages in several ways, all at once; return a row for each.

        `look` finds them in what was read: a row so far, and the ways, whose names end with `.pot` or
        `.alone`. What two ways have in common is answered once.
        """
        started, batch, used = time.perf_counter(), DecodeBatch(), [0, 0]
        answers, asked = dict[Any, tuple[Answer, list[float]]](), list[tuple[Told, dict[str, Any]]]()
        for example in some:
            self.take_in(example)
            row, ways = look(example)
            known: dict[Any, Any] = {}
            for way, passages in ways.items():
                alone = way.endswith(".alone")
                if (key := (alone, type(passages), *passages)) not in known:
                    reader = self._beside(alone, used, example)
                    known[key] = sequence = self._sequence(reader, example, passages)
                    answers[sequence] = Answer(reader, example.one_line), []
                    batch.add(sequence)
            own = {way: known[way.endswith(".alone"), type(few), *few] for way, few in ways.items()}
            asked.append((row, own))
        _decoded(batch, answers)
        took = round((time.perf_counter() - started) / len(some), 2)
        return [
            {**row, "ways": {way: self._told(one, *answers[own]) for way, own in ways.items()}, "s": took}
            for one, (row, ways) in zip(some, asked, strict=True)
        ]

    def _told(self, example: Example, answer: Answer, likely: list[float]) -> Told:
        said = answer.whole()
        told = [round(one, 3) for one in (likely[0], fmean(likely))] if likely else []
        return {"score": round(self.task.score(said, example), 4), "said": said, "likely": told}

    def _beside(self, alone: bool, used: list[int], example: Example) -> Any:
        """Return the next reader that is not in use: an empty one, or one with the pot as it was read."""
        readers = self.readers[alone]
        if used[alone] == len(readers):
            readers.append(self._reader(alone))
        reader = readers[used[alone]]
        used[alone] += 1
        reader.clear()
        reader.set_question(bare=example.bare)
        if not alone:
            reader.take_over(self.known)
        return reader

    def _sequence(self, reader: Any, example: Example, passages: list[Passage]) -> Any:
        ids = recalled.prompt(reader, example.query or example.question, passages, example.question)
        return reader.sequence(ids, Generation(example.new_tokens, logprobs=0), final=True)

    def as_asked(self, example: Example, meaning: int = 0) -> Looked:
        """Return the passages that the default of this device finds, with so many sentences by meaning."""
        reader, question = self.read, example.query or example.question
        words, reader.session.config = reader.config, replace(reader.config, judge=None, meaning=meaning)
        passages = reader.recall(question)
        reader.session.config = words
        alone = isinstance(passages, recalled.Enough)
        return {"example": example.id, "without_pot": alone}, {"asked.pot": passages}

    def look(self, example: Example, meant: bool) -> Looked:
        """Return what is known of a question before it is answered, and the passages of each way."""
        reader, question = self.read, example.query or example.question
        archive, encode = reader.archive, reader.tokenizer.encode
        others = range(1, archive.last + 1)  # where words find too few, as `--judge` does
        every = dict.fromkeys([*ranked(archive, [question]), *others])
        some = [*archive.passages(list(every)[:JUDGED])]
        says = judge(reader, question, [one.text.strip() for one in some]) if some else []
        best = sorted(range(len(some)), key=says.__getitem__, reverse=True)

        def near(most: int) -> list[Passage]:
            kept = [some[at] for at in best[:most] if says[at] >= says[best[0]] - NEAR]
            return taken(kept, [question], reader.config.recalled, lambda text: len(encode(text)))

        chosen = {"words": reader.recall(question), "judged": near(MOST), "many": near(2 * MOST)}
        if meant and self.means:
            words, session = reader.config, reader.session
            session.config = replace(words, meaning=Recipe.named().config.meaning)
            chosen["meant"] = reader.recall(question)
            session.config = words
        row: Told = {"example": example.id, "facts": dict(example.facts)}
        row |= {"coverage": coverage(archive, question), "judged": [round(one, 2) for one in says]}
        row["recalled"] = {name: sum(len(encode(one.text)) for one in few) for name, few in chosen.items()}
        ends = {f"{way}.{end}": few for end in ("pot", "alone") for way, few in chosen.items()}
        return row, {"pure.pot": [], **ends}


def _decoded(batch: DecodeBatch, answers: dict[Any, tuple[Answer, list[float]]]) -> None:
    """Decode all sequences to their ends, and note how likely each token was."""
    while batch.sequences:
        for sequence, token in batch.step():
            answer, likely = answers[sequence]
            if token is not None and sequence.score is not None:
                likely.append(sequence.score.logprob)
            if not answer.push(token):
                batch.drop(sequence)


def rows(name: str, engine: Engine, args: argparse.Namespace, done: set[str]) -> Iterator[Told]:
    """Ask the questions of a text that were not asked before."""
    task, asked = questions(name, args, lambda text: len(engine.tokenizer.encode(text)))
    asking, meant = Asking(task, engine, args.capacity), name.startswith(("facts", "essays"))
    left = iter([one for one in asked[: args.most] if one.id not in done])

    def look(one: Example) -> Looked:
        return asking.as_asked(one, args.meaning) if args.as_asked else asking.look(one, meant)

    while some := list(islice(left, TOGETHER)):
        yield from asking.answered(some, look)


def measure(name: str, engine: Engine, args: argparse.Namespace, made: Any = rows) -> None:
    """Measure one text, from where an earlier run ended, as long as there is time."""
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / f"{name}.jsonl"
    before = _lines(file) if file.exists() else []
    with file.open("a", encoding="utf-8") as out:
        for row in made(name, engine, args, {row["example"] for row in before}):
            out.write(json.dumps({"text": name, **row}) + "\n")
            out.flush()
            if time.monotonic() > args.ends:
                return


def _lines(file: Path) -> list[Told]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def table(folder: Path) -> str:
    """The mean of every way, in percent, set by set."""
    lines, sets = [], dict[str, list[Told]]()
    for file in sorted(folder.glob("*.jsonl")):
        sets.setdefault(file.stem.rpartition("-")[0], []).extend(_lines(file))
    for name, some in sets.items():
        ways = some[0]["ways"] if some else ()
        means = (f"{way} {100 * fmean(row['ways'][way]['score'] for row in some):.1f}" for way in ways)
        lines.append(f"{name:24} {len(some):4} questions: {', '.join(means)}")
    return "\n".join(lines)


def parser(about: str | None) -> argparse.ArgumentParser:
    """What a run is told."""
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    found.add_argument("--model", default="qwen2.5-coder-1.5b")
    found.add_argument("--device", default="auto")
    found.add_argument("--dtype", default="auto")
    found.add_argument("--data", type=Path, required=True)
    found.add_argument("--capacity", type=int, default=4096)
    found.add_argument("--most", type=int, help="questions of a text, for a try")
    found.add_argument("--minutes", type=float, default=9)
    found.add_argument("--as-asked", action="store_true", help="in one way alone")
    found.add_argument("--meaning", type=int, default=0, help="sentences by meaning, with --as-asked")
    found.add_argument("--beside", type=Path, help="folder of another model of sentences, for judging.py")
    found.add_argument("--out", type=Path, required=True)
    return found


def main() -> None:
    """Measure, and print the means."""
    told = parser(__doc__)
    told.add_argument("--texts", required=True)
    args = told.parse_args()
    args.ends = time.monotonic() + 60 * args.minutes
    engine = open_engine(args.model, args.device, args.dtype)
    for name in args.texts.split(","):
        measure(name, engine, args)
    print(table(args.out))


if __name__ == "__main__":
    main()
