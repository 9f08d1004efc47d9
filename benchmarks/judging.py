"""Which sentences to read for a question in other words: rules compared that weigh what is known of each.

    python benchmarks/judging.py --data DIR --out judging --texts paraphrase-tune-128k,statements-128k

DIR is as for `recall.py`; the extra `meaning` must be there. For each question of a text, sentences near in
meaning and passages by words are judged in two ways, and the pot answers from what each rule of `RULES`
chooses. OUT/TEXT.jsonl has a line a question: scores of all that was judged, which of it is right, whether
each rule's answer is. A rule is chosen on `paraphrase-tune-*` and on `statements-*`, forty statements of our
own; `paraphrase-report-*` is for tables. The same command goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from infinipot import Generation, Recipe
from infinipot.engine import Engine, open_engine
from infinipot.errors import ConfigError
from infinipot.eval.tasks.facts import FactsTask
from infinipot.eval.tasks.task import Example, make
from infinipot.reading import judge, recalled
from infinipot.recall.meaning import nearest
from infinipot.recall.search import coverage, ranked, taken

NEAR, BEFORE = 48, 24  # sentences that are judged, and that were before a rule was chosen here
WORDS = "words"  # the rule that judges nothing
LIKELIHOOD = "{sentence}\n\nThe text above says the answer to this question:"
Signals = dict[str, list[float]]
RULES: dict[str, Callable[[Signals], list[float]]] = {
    "yes": lambda of: [
        says if place < BEFORE else -99.0 for says, place in zip(of["yes"], of["place"], strict=True)
    ],
    "yes48": lambda of: of["yes"],
    "examples": lambda of: of["examples"],
    "both": lambda of: _sum(of["yes"], of["examples"]),
    "likely": lambda of: _sum(of["yes"], of["examples"], of["likely"]),
    "near": lambda of: _sum(of["yes"], of["examples"], [12 * one for one in of["near"]]),
    "all": lambda of: _sum(of["yes"], of["examples"], of["likely"], [12 * one for one in of["near"]]),
}


def _sum(*signals: list[float]) -> list[float]:
    return [sum(some) for some in zip(*signals, strict=True)]


@torch.no_grad()
def likelihood(reader: Any, question: str, texts: Sequence[str]) -> list[float]:
    """Return the log likelihood of the question after each text, less the mean over all of them."""
    model, encode, frame = reader.model, reader.tokenizer.encode, reader.dialogue_frame
    asked, found = encode(f" {question}"), list[float]()
    for text in texts:
        before = [*frame.opening, *encode(LIKELIHOOD.format(sentence=" ".join(text.split())))]
        ids = torch.tensor([[*before, *asked]], device=model.device)
        hidden = model.forward(ids, model.new_pot(ids.shape[1], ids.shape[1] - 1, judge.ALONE))
        said = model.logits(hidden[0, len(before) - 1 : -1]).float().log_softmax(-1)
        found.append(float(said[range(len(asked)), asked].sum()))
    return [one - fmean(found) for one in found]


def questions(name: str, data: Path, count: Callable[[str], int]) -> tuple[FactsTask, list[Example]]:
    """The questions of a text, by its name: SET-HALF-LENGTH, or statements-LENGTH."""
    kind, *parts, length = name.split("-")
    own = kind == "statements"
    given = {"data": Path(__file__).parent if own else data / "facts", "hay": str(data / "books")}
    given |= {"facts": kind, "part": "all" if own else parts[0], "lengths": length}
    task = make("facts", {**given, "planted": 40}, 3 if own else 0)
    assert isinstance(task, FactsTask)
    return task, [one for one in task.examples(count) if isinstance(one, Example)]


def rows(name: str, engine: Engine, args: argparse.Namespace, done: set[str]) -> Iterator[dict[str, Any]]:
    """Ask the questions of a text by every rule."""
    encode = engine.tokenizer.encode
    task, asked = questions(name, args.data, lambda text: len(encode(text)))
    pot = engine.reader(Recipe.named(capacity=args.capacity, format=engine.format, meaning=0))
    if not (asked := [one for one in asked[: args.most] if one.id not in done]):
        return
    pot.read(asked[0].text)
    read, planted = pot.fork(), statements(name, args.data)
    for one in asked:
        started = time.perf_counter()
        some, signals = judged(pot, one.query)
        found, telling = coverage(pot.archive, one.query)
        row = {"text": name, "example": one.id, "s": round(time.perf_counter() - started, 2)}
        row["doubtful"] = bool(telling) and (found <= recalled.COVERED * telling or found < recalled.TWO)
        row["right"] = [at for at, passage in enumerate(some) if planted[one.query] in passage.text]
        row["scores"] = {}
        for rule, passages in choices(pot, one.query, some, signals, args.capacity // 4):
            pot.take_over(read)
            prompt = recalled.prompt(pot, one.query, passages, one.question)
            said = pot.tokenizer.decode(list(pot.generate(prompt, Generation(one.new_tokens), final=True)))
            row["scores"][rule] = task.score(said, one)
        pot.take_over(read)
        yield row | {key: [round(value, 3) for value in values] for key, values in signals.items()}


def choices(
    pot: Any, question: str, some: list[Any], signals: Signals, budget: int
) -> Iterator[tuple[str, list[Any]]]:
    """Yield every rule with the passages it chooses."""
    yield WORDS, recalled.passages_for(pot, question, budget)
    for rule, weigh in RULES.items():
        says = weigh(signals)
        best = sorted(range(len(says)), key=says.__getitem__, reverse=True)[: judge.MOST]
        chosen = [some[at] for at in best if says[at] >= says[best[0]] - judge.NEAR]
        yield rule, taken(chosen, [question], budget, lambda text: len(pot.tokenizer.encode(text)))


def statements(name: str, data: Path) -> dict[str, str]:
    """The statement that answers each question."""
    own = name.startswith("statements")
    file = Path(__file__).parent / "statements.jsonl" if own else data / "facts" / "paraphrase.jsonl"
    read = [json.loads(line) for line in file.open(encoding="utf-8")]
    return {one["question"]: one["statement"] for one in read}


def judged(pot: Any, question: str) -> tuple[list[Any], Signals]:
    """Return what may be read for a question, sentences and four passages by words, and its signals."""
    guess = recalled.said(pot, recalled.LIKELY, question, recalled.SEVERAL)
    asked, embedder = [question, guess, f"{question} {guess}"], pot.model.meaning
    near = nearest(pot.archive, embedder, asked, NEAR)
    words = [*pot.archive.passages(ranked(pot.archive, [question])[: judge.MOST])]
    texts = [passage.text.strip() for passage in (*near, *words)]
    vectors = embedder.vectors([*asked, *texts]).astype("float32")
    signals = {
        "place": [*map(float, range(len(near))), *[0.0] * len(words)],
        "near": [float(one) for one in vectors[len(asked) :] @ vectors[: len(asked)].mean(0)],
        "yes": judge.judge(pot, question, texts),
        "examples": judge.judge_by_examples(pot, question, texts),
        "likely": likelihood(pot, question, texts),
    }
    return [*near, *words], signals


def measure(name: str, engine: Engine, args: argparse.Namespace) -> None:
    """Measure one text, from where an earlier run ended, as long as there is time."""
    if engine.model.meaning is None:  # type: ignore[attr-defined]  # of a model in memory
        raise ConfigError("the extra `meaning` is not installed")
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / f"{name}.jsonl"
    before = [json.loads(line) for line in file.open(encoding="utf-8")] if file.exists() else []
    with file.open("a", encoding="utf-8") as out:
        for row in rows(name, engine, args, {row["example"] for row in before}):
            out.write(json.dumps(row) + "\n")
            out.flush()
            if time.monotonic() > args.ends:
                return


def table(folder: Path) -> str:
    """How many questions of each text each rule answers, and for how many the right sentence was there."""
    lines = []
    for file in sorted(folder.glob("*.jsonl")):
        found = [json.loads(line) for line in file.open(encoding="utf-8")]
        scores = " ".join(
            f"{rule} {sum(one['scores'][rule] for one in found):.0f}" for rule in (WORDS, *RULES)
        )
        there = sum(bool(one["right"]) for one in found)
        lines.append(f"{file.stem:24} {len(found):3} questions, found {there}: {scores}")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print how many answers are right by each rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--texts", default="paraphrase-tune-16k,paraphrase-tune-128k,statements-128k")
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--most", type=int, help="questions of a text")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.ends = time.monotonic() + 60 * args.minutes
    engine = open_engine(args.model, args.device, args.dtype)
    for name in args.texts.split(","):
        measure(name, engine, args)
    print(table(args.out))


if __name__ == "__main__":
    main()
