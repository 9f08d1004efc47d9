"""The loop: read what fits, distil, go on; answer, and distil while answering.

Enters at tokens or text, leaves as tokens or text. Knows a model only as three
functions and a tokenizer only as its protocol, so it runs on any engine.
Progress is yielded, never called back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from infinipot.core.config import DEFAULT_MODE, PotConfig, ReadingMode
from infinipot.core.cuda.graphs import Static
from infinipot.core.distill import distill
from infinipot.core.state import State, joined
from infinipot.errors import InputError
from infinipot.policies.base import Policy
from infinipot.reading.catalyst import catalyst_text
from infinipot.reading.decode import Tail, Voice, speak
from infinipot.reading.head_tail import HeadAndTail
from infinipot.reading.held_words import Word, columns
from infinipot.reading.sampling import Generation
from infinipot.reading.session import BLOCK, RECENT, Model, Writer
from infinipot.text.detokenize import Detokenizer, Until
from infinipot.text.tokenizer import Format, Frame, Tokenizer


@dataclass(frozen=True)
class Progress:
    """Where reading stands."""

    tokens_read: int
    cycles: int
    fill: int
    capacity: int | None  # None where nothing bounds the fill
    seconds: float
    waiting: int = 0  # tokens of the text that are there and not read yet


class Reader(Writer):
    """A model, a pot, and the text read so far.

    Without a policy nothing is ever dropped from the pot; the mode then says how a
    text of any length is dealt with.
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
        super().__init__(model, policy, config, mode)
        self.tokenizer = tokenizer
        self.frame = self._layout = tokenizer.frame(format)
        self._catalyst = catalyst
        self.set_question(question, bare=bare)
        self.block = BLOCK  # most tokens read at once
        self.tokens_read = 0
        self.seconds = 0.0
        self._ends = HeadAndTail(config.capacity) if mode.prompt == "truncate" else None
        self._talking = False  # a reply was given, so the next message is a further turn
        self._brimful = False  # the last answer filled the pot beyond what can be distilled
        self._ours = 0  # next tokens to be read that are the prompt's, not the text's

    def set_question(
        self, question: str | None = None, catalyst: str = "", framed: bool = True, bare: bool = False
    ) -> None:
        """Before anything is read: take the catalyst for this question, and the format's frame.

        With `bare`, text and question are a complete prompt as they are. Without a frame the
        caller brings everything that goes around texts and questions, be they many.
        """
        self.frame = self._layout
        self._catalyst = catalyst or self._catalyst
        wanted = "catalyst" in self.needs
        self.catalyst = self._closing(catalyst_text(self._catalyst, question)) if wanted else []
        self.config.chunk(len(self.catalyst))
        if bare:
            self.frame = replace(self.frame, ask_before=())
        if not framed:
            self.frame = Frame(stop_strings=self._layout.stop_strings)

    def clear(self) -> None:
        """Forget everything read and said; the pot's memory and what was captured for it stay."""
        self.tail = Tail(self.pot)  # nothing is computed: also after memory ran out
        self.pot.clear()
        self.trace.clear()
        self._brimful = self._fitted = False
        self.tokens_read, self.seconds, self._last, self._pending = 0, 0.0, None, []
        self._talking = self._fresh = False
        if self._ends is not None:
            self._ends = HeadAndTail(self.config.capacity)

    def state(self) -> State:
        """Return everything this reader knows; tensors are views, so use them before it goes on."""
        self.end()
        parts = {"pot": self.pot.state(), "trace": self.trace.state(self.pot)}
        found = joined(parts)
        numbers = {
            **found.numbers,
            "tokens_read": self.tokens_read,
            "pending": list(self._pending),
            "talking": int(self._talking),
            "fresh": int(self._fresh),
            "fitted": int(self._fitted),
            "ends": self._ends.state() if self._ends else None,
        }
        last = {} if self._last is None else {"last": self._last}
        return State({**found.tensors, **last}, numbers)

    def restore(self, state: State) -> None:
        """Take over a state in place; one that does not fit leaves this reader empty, with the reason."""
        self.clear()
        pending = state.numbers.get("pending")
        known = isinstance(pending, list) and all(type(token) is int for token in pending)
        if not known or not all(0 <= token < self.model.vocabulary for token in pending or []):
            raise InputError("this state's pending tokens are damaged: make the pot again")
        try:
            self.pot.load(state.part("pot"), self.model.device)
            self.trace.restore(state.part("trace"))
            if self._ends is not None:
                self._ends = HeadAndTail.restored(state.numbers.get("ends"), self.config.capacity)
            last = state.tensors.get("last")
            self._last = None if last is None else self._readable(last.to(self.model.device))
            self.tokens_read = state.number("tokens_read", 0, 2**62)
            self._talking, self._fresh = (bool(state.number(n, 0, 1)) for n in ("talking", "fresh"))
            self._fitted = state.numbers.get("fitted") == 1  # older states do not say
        except BaseException:
            self.clear()
            raise
        self._pending = list(pending or [])

    def _readable(self, hidden: Tensor) -> Tensor:
        """A hidden state [1, 1, H], if the model's head can read it: it may come from a stranger's file."""
        try:
            known = hidden.shape[:2] == (1, 1) and self.model.logits(hidden).shape[:2] == (1, 1)
        except (RuntimeError, IndexError) as error:
            raise InputError("this state's last token is of another model: make the pot again") from error
        if not known:
            raise InputError("this state's last token is damaged: make the pot again")
        return hidden

    def words(self) -> list[Word]:
        """Return the words of everything read that the pot still holds, in reading order."""
        self.end()
        return self.trace.words(columns(self.pot), self.tokenizer, len(self.frame.opening))

    @property
    def _begun(self) -> bool:
        """Something was read or said."""
        return bool(self.pot.tokens or self._pending or (self._ends and self._ends.total))

    # Reading ------------------------------------------------------------------

    def read(self, text: str | Iterable[str]) -> Progress:
        """Read a text of any length, whole or in pieces."""
        for _ in self.reading(text):
            pass
        return self.progress()

    def reading(self, text: str | Iterable[str]) -> Iterator[Progress]:
        """Read a text, yielding after every forward pass."""
        pieces = [text] if isinstance(text, str) else text
        return self.reading_tokens(self.tokenizer.encode_stream(pieces))

    def reading_tokens(self, stream: Iterable[Sequence[int]]) -> Iterator[Progress]:
        """Read tokens as they come, yielding after every forward pass."""
        waiting = self._preamble()
        if self._talking:  # text after a reply begins the user's next turn
            waiting += self.frame.turn_before
        self._ours = len(waiting)
        for ids in stream:
            waiting.extend(ids)
            while len(waiting) > self._space() + self._held + self._ahead:
                yield self._take(waiting)
        while len(waiting) > self._held:
            yield self._take(waiting, ends=True)
        started = time.perf_counter()
        self._keep_pace(last=True)
        self.seconds += time.perf_counter() - started
        self.tokens_read += max(0, len(waiting) - self._ours)
        if waiting:
            self._pending, self._talking = waiting, False

    @property
    def _held(self) -> int:
        """Last tokens of a text that are written with the question, since they are observed with it."""
        return self.policy.last if self.policy and self.mode.distil == "prompt" else 0

    @property
    def _ahead(self) -> int:
        """Tokens to know beyond the pot's room before it is distilled: are they the text's last ones?"""
        return self.config.chunk(len(self.catalyst)) if self.config.tail == "fill" and self._drops else 0

    def _take(self, waiting: list[int], ends: bool = False) -> Progress:
        """Read the next block of waiting tokens; distil if it fills the pot and more will follow.

        Where the text `ends` with them as much may stay as fits beside the rest; not twice on end,
        or a text in many short pieces would be distilled with each of them.
        """
        started = time.perf_counter()
        space = self._space()
        count = min(len(waiting) - self._held, space, self.block)
        distil = self._drops and count == space < len(waiting)
        if count > BLOCK // 2 and count + distil * len(self.catalyst) not in self.pot.lengths:
            count, distil = BLOCK // 2, False  # a rare shape is not captured: its memory comes on top
        if self._ends is not None:
            self._ends.push(waiting[:count])
        else:
            budget = self.config.kept
            if distil and ends and self.config.tail == "fill" and not self._fitted:
                rest = len(waiting) - count + len(self.catalyst)
                budget = max(budget, self.config.capacity - rest)
            self._write(waiting[:count], distil=distil, budget=budget)
        del waiting[:count]
        self._talking = False
        self.tokens_read += max(0, count - self._ours)
        self._ours = max(0, self._ours - count)
        self._pending = waiting[
            : self._ours
        ]  # counted before, or the prompt's: not lost if reading ends here
        self._fresh = self.pot.fill > self.config.kept
        self._keep_pace()
        self.seconds += time.perf_counter() - started
        return self.progress(len(waiting))

    def progress(self, waiting: int = 0) -> Progress:
        """Return where reading stands."""
        pot = self.pot
        capacity = None if self.mode.grows else pot.capacity
        return Progress(self.tokens_read, pot.cycles, pot.fill, capacity, self.seconds, waiting)

    # Answering ----------------------------------------------------------------

    def ask(self, question: str, generation: Generation = Generation()) -> str:  # noqa: B008  frozen
        """Answer a question; the pot stays as it was, so questions do not see each other."""
        if self._static is None or self.recording is not None:
            return "".join(self.fork().answer(question, generation)).strip()
        before = self.fork()  # graphs know this pot's addresses: answer here, then put everything back
        try:
            return "".join(self.answer(question, generation)).strip()
        finally:
            self.pot.restore(before.pot)
            kept = {"pot": self.pot, "_static": self._static, "tail": Tail(self.pot)}
            self.__dict__.update(before.__dict__, **kept)

    def answer(self, question: str, generation: Generation = Generation()) -> Iterator[str]:  # noqa: B008
        """Yield the answer's text as it is generated; the question and it use up this reader's pot."""
        yield from self._say(self.turn(question), generation, final=True)

    def check(self, question: str, max_new_tokens: int = 1) -> None:
        """Refuse a question that is too long for the pot, before anything long is read."""
        self.require(len(self._closing(question)), max_new_tokens)

    def require(self, count: int, max_new_tokens: int = 1) -> None:
        """Refuse a prompt of so many tokens if it is too long for the pot."""
        if self._ends is not None:
            self._require_cut(len(self.frame.opening) + count, max_new_tokens)
        else:
            self._require(count, 1 + len(self.catalyst))

    def chat(self, message: str, generation: Generation = Generation()) -> Iterator[str]:  # noqa: B008
        """Yield the reply to a message; message and reply stay in the pot, however long the talk."""
        yield from self._say(self.turn(message), generation, final=False)

    def turn(self, message: str) -> list[int]:
        """A message in its place: after a text, after a reply, or first of all."""
        frame, ids = self.frame, self.tokenizer.encode(message)
        if self._talking:
            return [*frame.turn_before, *ids, *frame.turn_after]
        return self._closing(message) if self._begun else [*ids, *frame.ask_after]

    def _closing(self, question: str) -> list[int]:
        """A question, or the catalyst, right after a text."""
        return [*self.frame.ask_before, *self.tokenizer.encode(question), *self.frame.ask_after]

    def _say(self, prompt: list[int], generation: Generation, final: bool) -> Iterator[str]:
        """Turn generated tokens into text, up to a stop string."""
        text = Until(Detokenizer(self.tokenizer), self.frame.stop_strings)
        for token in self.generate(prompt, generation, final=final):
            yield text.push(token)
            if text.stopped:
                return
        yield text.flush()

    def prompt(self, question: str, max_new_tokens: int) -> list[int]:
        """Return the question's tokens after making room for them and for an answer of that length.

        For engines that generate by themselves and cannot distil on the way.
        """
        ids = [*self._preamble(), *self.turn(question)]
        if self._ends is not None:
            self._ends, cut = self._cut(ids, max_new_tokens)
            return cut
        self._settle(len(ids), max_new_tokens, final=True)
        self._make_room(len(ids), max_new_tokens)
        return ids

    def generate(self, prompt: Sequence[int], generation: Generation, final: bool = False) -> Iterator[int]:
        """Yield new tokens after the prompt, up to a stop token, distilling when the pot is full.

        Nothing of the prompt is lost: the pot is distilled before it if need be. With
        `final` nothing will follow the answer, so it may use the pot to the brim.
        """
        for _, token in speak([Voice(0, self, prompt, generation, final)]):
            yield token

    # What decoding asks (decoding.py) -------------------------------------------

    @property
    def stops(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return self.tokenizer.stop_ids

    def open(self, prompt: Sequence[int], most: int, final: bool) -> tuple[Tensor, bool]:
        """Write the prompt; return its last hidden state [1, 1, H], and if the answer may fill the pot."""
        prompt, ends = [*self._preamble(), *prompt], self._ends
        if ends is not None:
            ends, prompt = self._cut(prompt, most)
        self._settle(len(prompt), most, final)
        brim = not self._drops or (final and len(prompt) + most <= self.pot.room)
        if not brim:
            self._make_room(len(prompt), 1 + len(self.catalyst))
        hidden = self._write(prompt, scored=not brim or self.mode.distil == "prompt")
        if self.mode.distil == "prompt" and self.policy is not None:
            sizes = self.config.capacity, self.config.opening
            distill(self.pot, self.policy, *sizes, observer=self._observer)
        if self._steady:
            self.pot.reserve(self.pot.fill + most)  # so that nothing moves while answering
        self._talking, self._ends, self._brimful = True, ends, brim and self._drops
        return hidden[:, -1:], brim

    def say(self, token: int) -> None:
        """Remember a token that the user saw and the pot has not."""
        if self._ends is not None:
            self._ends.push([token])
        else:
            self._pending = [token]

    def _cut(self, prompt: list[int], most: int) -> tuple[HeadAndTail, list[int]]:
        """Empty the pot; return all that was said, and both ends of it to be written."""
        assert self._ends is not None
        self._require_cut(len(prompt), most)
        ends = self._ends.copy()
        ends.push(prompt)
        self.pot.clear()
        self.trace.clear()
        self._last = None
        return ends, ends.cut(self.config.capacity - most)

    def _require_cut(self, count: int, most: int) -> None:
        """Refuse a prompt that would be cut itself."""
        limit = self.config.capacity - most
        cut = self._ends is not None and self._ends.total + count > limit
        if count > limit or (cut and count > limit // 2):
            raise InputError(
                f"a question of {count} tokens and an answer of up to {most} are too long for a pot of "
                f"{self.config.capacity}: shorten them or use --capacity {2 * count + most}"
            )

    # Inside -----------------------------------------------------------------------

    def fork(self) -> Reader:
        """Return an independent reader with the same pot."""
        self.end()
        twin = object.__new__(type(self))
        ends = None if self._ends is None else self._ends.copy()
        pot = self.pot.fork()
        twin.__dict__.update(self.__dict__, pot=pot, _ends=ends, tail=Tail(pot), trace=self.trace.copy())
        twin.recording = None
        if self._static is not None:
            twin._static = Static(twin.pot, self._static.capture)
        return twin

    def _preamble(self) -> list[int]:
        """What must be written before anything else: the opening, or an answer's last token."""
        self.end()
        if self.pot.room < len(self.catalyst):
            self._squeeze()
        return list(self._pending if self._begun else self.frame.opening)

    def _squeeze(self) -> None:
        """Distil with as much of the catalyst's end as fits: the pot was filled beside a shorter one."""
        if self._brimful or not self._drops or not self.pot.room:
            raise InputError(
                "this reader's pot was filled by its answer: use ask(), or fork() before answer()"
            )
        budget = self.config.capacity - len(self.catalyst) if self.config.tail == "fill" else 0
        catalyst, self.catalyst = self.catalyst, self.catalyst[-self.pot.room :]
        try:
            self._write([], distil=True, recent=RECENT, budget=max(self.config.kept, budget))
        finally:
            self.catalyst = catalyst
