"""The loop: read what fits, distil, go on; answer, and distil while answering.

How a text is taken in is `intake`'s, what a forward pass does `session`'s, how an answer goes on `decode`'s.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Several
from copy import copy
from dataclasses import replace
from typing import Self

from torch import Tensor

from infinipot.core.config import DEFAULT_MODE, PotConfig, ReadingMode
from infinipot.core.pot import Pot
from infinipot.core.state import State
from infinipot.policies.base import Policy
from infinipot.reading import recalled, room
from infinipot.reading.answer import AnswerText
from infinipot.reading.catalyst import catalyst_text
from infinipot.reading.decode import decode
from infinipot.reading.held_words import Word, columns
from infinipot.reading.intake import take_in
from infinipot.reading.model import Model
from infinipot.reading.progress import Progress
from infinipot.reading.recalled import Answer
from infinipot.reading.sampling import Generation
from infinipot.reading.sequence import Sequence, begin
from infinipot.reading.session import PotSession
from infinipot.recall.archive import Archive
from infinipot.recall.passages import Passage
from infinipot.text.sentences import Sentences
from infinipot.text.tokenizer import Format, Frame, Tokenizer, chat_frame

GREEDY = Generation()


class Reader:
    """A model, a pot, and the text read so far; without a policy nothing is ever dropped from the pot.

    All text goes to the reader's `archive`, from which passages are recalled; where it is None, nothing is.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        policy: Policy | None,
        config: PotConfig,
        format: Format = "plain",
        catalyst: str = "general",
        question: str | None = None,
        mode: ReadingMode = DEFAULT_MODE,
        bare: bool = False,
    ) -> None:
        self.session, self.tokenizer = PotSession(model, policy, config, mode), tokenizer
        if "sentence" in self.session.needs:
            self.session.sentences = Sentences(tokenizer)
        self.frame = self._layout = tokenizer.frame(format)
        self._format, self._chat = format, chat_frame(tokenizer)
        self.dialogue_frame = self._chat or self.frame
        self._catalyst = catalyst
        self.archive: Archive | None = Archive()
        self.set_question(question, bare=bare)

    def knows(self, question: str) -> bool:
        """Say whether what is read is read for this question."""
        text = catalyst_text(self._catalyst, question)
        return question in text and self.session.catalyst == self.closing(text)

    @property
    def pot(self) -> Pot:
        """The slots of all layers."""
        return self.session.pot

    @property
    def model(self) -> Model:
        """The language model."""
        return self.session.model

    @property
    def config(self) -> PotConfig:
        """The pot's sizes."""
        return self.session.config

    @property
    def tokens_read(self) -> int:
        """Tokens of text read so far."""
        return self.session.state.tokens_read

    def set_question(
        self, question: str | None = None, catalyst: str = "", framed: bool = True, bare: bool = False
    ) -> None:
        """Before anything is read: take the catalyst for this question, and the format's frame.

        With `bare`, text and question are a complete prompt. Not `framed`: the caller brings what is around.
        """
        self.frame, self._catalyst = self._layout, catalyst or self._catalyst
        wanted = "catalyst" in self.session.needs
        self.session.catalyst = self.closing(catalyst_text(self._catalyst, question)) if wanted else []
        self.config.chunk(len(self.session.catalyst))
        if bare:
            self.frame = replace(self.frame, ask_before=())
        if not framed:
            self.frame = Frame(stop_strings=self._layout.stop_strings)

    def set_opening(self, opening: Several[int]) -> None:
        """Before anything is read: begin with these tokens, such as a system's message in its place."""
        self.frame = self._layout = replace(self._layout, opening=tuple(opening))

    def clear(self) -> None:
        """Forget everything read and said; the pot's memory and what was captured for it stay."""
        self.session.clear()
        self.archive = self.archive and Archive()

    def fork(self) -> Self:
        """Return an independent reader with the same pot."""
        twin = copy(self)
        twin.session, twin.archive = self.session.fork(), self.archive and self.archive.fork()
        return twin

    def take_over(self, other: Self) -> None:
        """Become what another reader of the same model and sizes is; a pot of fixed size does not move."""
        if self.session.mode.grows:
            self.session = other.session.fork()
        else:
            self.session.put_back(other.session)
        self.archive = other.archive and other.archive.fork()

    def state(self) -> State:
        """Return everything this reader knows; tensors are views, so use them before the reader goes on."""
        return self.session.saved()

    def restore(self, state: State) -> None:
        """Take over a state in place; one that does not fit leaves this reader empty, with the reason."""
        self.session.load(state)

    def words(self) -> list[Word]:
        """Return the words of everything read that the pot still holds, in reading order."""
        self.session.flush()
        return self.session.held_words.words(columns(self.pot), self.tokenizer, len(self.frame.opening))

    def read(self, text: str | Iterable[str]) -> Progress:
        """Read a text of any length, whole or in pieces."""
        deque(self.reading(text), maxlen=0)
        return self.progress()

    def reading(self, text: str | Iterable[str]) -> Iterator[Progress]:
        """Read a text, yielding after every forward pass."""
        pieces = self.archived([text] if isinstance(text, str) else text)
        return self.reading_tokens(self.tokenizer.encode_stream(pieces))

    def archived(self, pieces: Iterable[str]) -> Iterable[str]:
        """Return the pieces of a text that is about to be read; the archive takes each down as it passes."""
        return pieces if self.archive is None else self.archive.taking(pieces)

    def reading_tokens(self, stream: Iterable[Several[int]]) -> Iterator[Progress]:
        """Read tokens as they come, yielding after every forward pass."""
        opening = self._preamble()
        if self.session.state.in_dialogue:  # text after a reply begins the user's next turn
            opening += self.frame.turn_before
        before = self.tokens_read
        for _ in take_in(self.session, opening, stream):
            yield self.progress()
        if self.archive is not None:
            self.archive.note_tokens(before, self.tokens_read - before)

    def progress(self) -> Progress:
        """Return where reading stands."""
        pot, state = self.pot, self.session.state
        capacity = None if self.session.mode.grows else pot.capacity
        return Progress(state.tokens_read, pot.cycles, pot.fill, capacity, state.seconds)

    def ask(self, question: str, generation: Generation = GREEDY, recall: int | None = None) -> Answer:
        """Answer a question; the pot stays as it was, so questions do not see each other.

        `recall` is as in `PotConfig`, whose own is meant where none is given.
        """
        return recalled.ask(self, question, generation, self.config.recalled if recall is None else recall)

    def recall(self, question: str, tokens: int | None = None) -> list[Passage]:
        """Return the passages of all that was read that matter for a question, with at most so many tokens.

        There are none where the pot still holds everything.
        """
        return recalled.passages_for(self, question, self.config.recalled if tokens is None else tokens)

    def answer(
        self, question: str, generation: Generation = GREEDY, passages: Several[Passage] | None = None
    ) -> Iterator[str]:
        """Yield the answer's text as it is generated; question and answer use up this reader's pot.

        Passages are recalled where none are given.
        """
        if passages is None:
            recalled.read_again(self, question, self.config.recalled)
            passages = self.recall(question)
        return self._said(recalled.prompt(self, question, passages), generation, final=True)

    def chat(self, message: str, generation: Generation = GREEDY) -> Iterator[str]:
        """Yield the reply to a message; message and reply stay in the pot, however long the talk.

        A reply that needs passages is given by a fork that reads them: the pot takes in the talk alone.
        """
        passages, said = self.recall(message), ""
        if passages:
            pieces = recalled.reply(self, message, generation, passages)
        else:
            pieces = self._said(recalled.prompt(self, message, ()), generation, final=False)
        for piece in pieces:
            said += piece
            yield piece
        if self.archive is not None:
            self.archive.add_turn("user", message)
            self.archive.add_turn("assistant", said)

    def take_turn(self, message: str, reply: Several[int]) -> None:
        """Write a message and the tokens of its reply, which another reader gave."""
        self.begin_answer(self.turn(message), len(reply), final=False)
        undistilled = self.session.state.has_undistilled
        deque(take_in(self.session, list(reply), ()), maxlen=0)
        self.session.state.in_dialogue, self.session.state.has_undistilled = True, undistilled

    def _said(self, prompt: Several[int], generation: Generation, final: bool) -> Iterator[str]:
        text = AnswerText(self.tokenizer, self.frame.stop_strings)
        return text.pieces(self.generate(prompt, generation, final))

    def check(self, question: str, max_new_tokens: int = 1) -> None:
        """Refuse a question that is too long for the pot, before anything long is read."""
        self.require(len(self.closing(question)), max_new_tokens)

    def require(self, count: int, max_new_tokens: int = 1) -> None:
        """Refuse a prompt of so many tokens if it is too long for the pot."""
        if self.session.state.head_tail is not None:
            room.require_cut(self.session, len(self.frame.opening) + count, max_new_tokens)
        else:
            room.require(self.session, count, 1 + len(self.session.catalyst))

    def turn(self, message: str, dialogue: bool = False) -> list[int]:
        """A message in its place: after a text, after a reply, or first of all.

        With `dialogue`, as a turn of the model's own chat template even where texts are only continued.
        """
        frame, ids = self.frame, self.tokenizer.encode(message)
        if dialogue and self._format == "plain" and (chat := self._chat):
            return [*chat.opening, *ids, *chat.ask_after]
        if self.session.state.in_dialogue:
            return [*frame.turn_before, *ids, *frame.turn_after]
        return [*(frame.ask_before if self._begun else ()), *ids, *frame.ask_after]

    def closing(self, question: str) -> list[int]:
        """A question, or the catalyst, right after a text."""
        return [*self.frame.ask_before, *self.tokenizer.encode(question), *self.frame.ask_after]

    def prompt(self, question: str, max_new_tokens: int) -> list[int]:
        """Return a question's tokens after making room for them and an answer: for engines of others."""
        ids, session = [*self._preamble(), *self.turn(question)], self.session
        if session.state.head_tail is not None:
            session.state.head_tail, ids = room.cut(session, ids, max_new_tokens)
        else:
            room.before_question(session, len(ids), max_new_tokens, final=True)
            room.make_room(session, len(ids), max_new_tokens)
        return ids

    def generate(self, prompt: Several[int], generation: Generation, final: bool = False) -> Iterator[int]:
        """Yield new tokens after the prompt, up to a stop token; a `final` answer may fill the pot."""
        for _, token in decode([self.sequence(prompt, generation, final)]):
            yield token

    def sequence(
        self, prompt: Several[int], generation: Generation, final: bool = False, index: int = 0,
        later: bool = False,
    ) -> Sequence:  # fmt: skip
        """Write a prompt, now or `later`; return the sequence of its answer, decoded alone or with others."""
        constraint = None
        if generation.grammar is not None:  # before the prompt is written: it may be refused
            constraint = generation.grammar.constraint(self.tokenizer, self.model.vocabulary)
        ids = [*self._preamble(), *prompt]
        begun = begin(self.session, ids, generation.max_new_tokens, final, later)
        stop_ids, unwritten = self.tokenizer.stop_ids, ids if later else ()
        return Sequence(self.session, *begun, generation, stop_ids, index, constraint, unwritten)

    def begin_answer(self, prompt: Several[int], most: int, final: bool) -> tuple[Tensor | None, bool]:
        """Write a prompt that an answer of up to `most` tokens follows, as `sequence.begin` does."""
        return begin(self.session, [*self._preamble(), *prompt], most, final)

    @property
    def _begun(self) -> bool:
        """Something was read or said."""
        state = self.session.state
        return bool(self.pot.tokens or state.pending or (state.head_tail and state.head_tail.total))

    def _preamble(self) -> list[int]:
        """What must be written before anything else: the opening, or an answer's last token."""
        self.session.flush()
        room.make_room_for_catalyst(self.session)
        return list(self.session.state.pending if self._begun else self.frame.opening)
