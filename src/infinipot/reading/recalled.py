"""Before an answer, the passages that matter are read again: a fork reads them, the pot stays as it was."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self

from infinipot.core.config import ALL, PotConfig
from infinipot.reading.answer import AnswerText
from infinipot.reading.catalyst import QUESTION, catalyst_text
from infinipot.reading.judge import MOST, judged
from infinipot.reading.plan import RECENT
from infinipot.reading.room import make_room_for_catalyst
from infinipot.reading.sampling import Generation
from infinipot.recall.archive import Archive
from infinipot.recall.meaning import nearest
from infinipot.recall.passages import Passage
from infinipot.recall.search import coverage, ranked, search, taken

if TYPE_CHECKING:
    from infinipot.reading.reader import Reader

LEAST = 16  # tokens of passages that are worth reading
ASIDE = 8  # a capacity's part that the pot itself has beside passages: more of it distracts
COVERED = 0.5  # of a question's telling words: if the best passage has no more, it is not trusted
THREE = 3  # nor if it has fewer of them than this; a question with fewer may be about the whole text
JUDGED = 32  # passages that a card judges in less time than an answer takes
FEW, SMALL = 32, 512  # tokens of keywords; entries of the pot that they are asked for in
SEVERAL = 60  # tokens of sentences that a story could contain
KEYWORDS = (
    "Which words would a text use that answers the question below? Write ten different single words, "
    "separated by commas.\n\nQuestion: {question}"
)
LIKELY = (  # a small model says what a word means or makes an answer up: both are near the right sentence
    "A story answers the question below without using the question's words. Write three short sentences that "
    "the story could contain.\n\nQuestion: {question}"
)
AROUND = 48  # tokens of PROMPT, the catalyst and a format's own
PROMPT = "Question: {question}\n\nPassages of the text that may hold the answer:\n\n{passages}\n\n{asked}"


class Answer(str):
    """An answer's text, and the passages that were read again for the answer."""

    passages: tuple[Passage, ...] = ()

    @classmethod
    def of(cls, text: str, passages: Sequence[Passage]) -> Self:
        """Return an answer and the passages it may come from."""
        answer = cls(text)
        answer.passages = tuple(passages)
        return answer


class Enough(list[Passage]):
    """Passages that say the answer, by the model's own judgement: beside them the pot would distract."""


def ask(reader: "Reader", question: str, generation: Generation, wanted: int) -> Answer:
    """Answer a question after its passages; the reader stays as it was."""
    passages = passages_for(reader, question, wanted)
    captured = reader.session.graphs is not None and reader.session.recording is None
    # Graphs know this pot's addresses: answer with it, then put all back.
    before, asked = (reader.session.fork(), reader) if captured else (None, reader.fork())
    try:
        read_again(asked, question, wanted)
        return Answer.of("".join(asked.answer(question, generation, passages)).strip(), passages)
    finally:
        if before is not None:
            reader.session.put_back(before)


def passages_for(reader: "Reader", question: str, budget: int, queries: Sequence[str] = ()) -> list[Passage]:
    """Return the passages of a reader's archive that matter for a question; none where the pot holds all.

    Without `queries` to look for, the question's `wordings` are. Where they find little, the model is asked
    what a text would say instead: that is looked for by meaning, or else by words.
    """
    holds_all = not reader.pot.cycles and reader.session.mode.prompt != "passages"
    if reader.archive is None or budget <= 0 or holds_all:
        return []
    encode, config = reader.tokenizer.encode, reader.config
    # The question stands before and after its passages, and in the catalyst.
    budget = min(budget, config.capacity // 2 - 3 * len(encode(question)) - AROUND)
    if budget < LEAST:
        return []
    archive, count = reader.archive, lambda text: len(encode(text))
    if queries:
        return search(archive, queries, budget, count)
    queries = wordings(archive, question, reader.session.state.in_dialogue)
    if config.judge:
        some, _ = judged(reader, queries[-1], best(archive, queries, config.judge))
        return taken(some, queries, budget, count)
    found, telling = coverage(archive, question)
    few = bool(telling) and found <= COVERED * telling
    doubtful = bool(telling) and (few or found < THREE)
    # The first use of the model of sentences loads it.
    if doubtful and config.meaning and (embedder := getattr(reader.model, "meaning", None)):
        guess = said(reader, LIKELY, question, SEVERAL)
        near = nearest(archive, embedder, [*queries, guess, f"{question} {guess}"], config.meaning)
        some = [*dict.fromkeys([*archive.passages(ranked(archive, queries)[:MOST]), *near])]
        some, _ = judged(reader, queries[-1], some, sentences=True)
        return taken(some, queries, budget, count)
    if doubtful and config.judge is None and (most := affordable(reader)):
        some, sure = judged(reader, queries[-1], best(archive, queries, most))
        passages = taken(some, queries, budget, count)
        whole = any(some[0].text in one.text for one in passages)  # neither cut nor the question itself
        needed = reader.session.state.in_dialogue or reader.knows(question)  # what passages have not
        sure = sure and whole and found > 0 and telling >= THREE and not needed
        return Enough(passages) if sure else passages
    if few:
        queries.append(said(reader, KEYWORDS, question, FEW, ("\n",)))
    return search(archive, queries, budget, count)


def best(archive: Archive, queries: Sequence[str], most: int) -> list[Passage]:
    """Return the best passages by their words, then, where words find fewer, all others in turn."""
    every = dict.fromkeys([*ranked(archive, queries), *range(1, archive.last + 1)])
    return [*archive.passages(list(every)[:most])]


def affordable(reader: "Reader") -> int:
    """Return how many passages can be judged before every answer without waiting long for it."""
    return JUDGED if reader.model.device.type == "cuda" else 0


def wordings(archive: Archive, question: str, in_dialogue: bool) -> list[str]:
    """Return what to look for: the question, and in a talk the question with what was said before."""
    before = archive.turns(2) if in_dialogue else []
    return [question, " ".join((*before, question))] if before else [question]


def said(reader: "Reader", prompt: str, question: str, most: int, stops: Sequence[str] = ()) -> str:
    """Return what the model says of a question in words that the text never uses, without the text."""
    asked = type(reader)(reader.model, reader.tokenizer, None, PotConfig(SMALL))
    ids = asked.turn(prompt.format(question=question), dialogue=True)
    if len(ids) + most + 1 > SMALL:
        return ""
    text = AnswerText(asked.tokenizer, stops)
    return "".join(text.pieces(asked.generate(ids, Generation(most), final=True)))


def prompt(reader: "Reader", question: str, passages: Sequence[Passage], asked: str = "") -> list[int]:
    """Return the tokens that ask a question after its passages; room is made with the question in mind.

    `asked` is the whole prompt where that is more than the question.
    """
    if reader.session.mode.prompt == "passages" or isinstance(passages, Enough):  # nothing but these
        reader.session.forget_slots()
    if not passages:
        return reader.turn(asked or question)
    aim(reader, question)
    make_way(reader)
    found = "\n\n".join(passage.text.strip() for passage in passages)
    text = PROMPT.format(question=question, passages=found, asked=asked or f"Question: {question}")
    return reader.turn(text, dialogue=True)


def read_again(reader: "Reader", question: str, wanted: int) -> int:
    """Where ALL is wanted, read everything again with the question known; return how many tokens that is."""
    if wanted != ALL or reader.archive is None or reader.archive.problem or not reader.pot.cycles:
        return 0
    reader.session.clear()
    aim(reader, question)
    for _ in reader.reading_tokens(reader.tokenizer.encode_stream(reader.archive.texts())):
        pass
    return reader.tokens_read


def aim(reader: "Reader", question: str) -> None:
    """From now on, keep what matters for a question, if there is room to say so."""
    catalyst = reader.closing(catalyst_text(QUESTION, question))
    if reader.session.catalyst and len(catalyst) < reader.config.capacity - reader.config.kept:
        reader.session.catalyst = catalyst


def make_way(reader: "Reader") -> None:
    """Leave of the pot what matters most beside passages."""
    session, budget = reader.session, reader.config.capacity // ASIDE
    if session.distils and session.catalyst and session.pot.cycles and budget < session.pot.fill:
        make_room_for_catalyst(session)
        session.write([], distil=True, recent=RECENT, budget=budget)


def reply(
    reader: "Reader", message: str, generation: Generation, passages: Sequence[Passage]
) -> Iterator[str]:
    """Yield a fork's reply to a message after its passages; the reader takes in message and reply alone."""
    twin, said = reader.fork(), []
    text = AnswerText(reader.tokenizer, reader.frame.stop_strings)

    def tokens() -> Iterator[int]:
        for token in twin.generate(prompt(twin, message, passages), generation, final=True):
            said.append(token)
            yield token

    yield from text.pieces(tokens())
    reader.take_turn(message, said)
