"""One answer on its way: which token comes next, how many may follow, whether the answer may fill the pot."""

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Several
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from infinipot.reading import room
from infinipot.reading.grammar import Constraint
from infinipot.reading.sampling import Generation
from infinipot.reading.session import PotSession


def begin(
    session: PotSession, prompt: list[int], most: int, final: bool, later: bool = False
) -> tuple[Tensor | None, bool]:
    """Write a prompt that an answer of up to `most` tokens follows, after making room for both.

    Returns the last token's hidden state [1, 1, H], and whether the answer may fill the pot: then nothing of
    the answer is ever distilled, and nothing can follow it. With `final` nothing will. A prompt that is
    written `later` has its room; the hidden state is that of the token before it, if there is one.
    """
    ends = session.state.head_tail
    if ends is not None:
        ends, prompt = room.cut(session, prompt, most)
    room.before_question(session, len(prompt), most, final)
    exhausts_pot = not session.distils or (final and len(prompt) + most <= session.pot.room)
    if not exhausts_pot:
        room.make_room(session, len(prompt), 1 + len(session.catalyst))
    if not later:
        session.write(prompt, scored=not exhausts_pot or session.mode.distil == "prompt")
    if session.mode.distil == "prompt":
        session.distil(session.config.capacity)
    if session.decodes_captured:  # so that nothing moves while answering
        session.pot.reserve(session.pot.fill + later * len(prompt) + most)
    state = session.state
    state.in_dialogue, state.head_tail = True, ends
    state.exhausts_pot = exhausts_pot and session.distils
    return state.last_hidden, exhausts_pot


@dataclass(frozen=True)
class TokenScore:
    """How likely a token was to the model, whatever the temperature or a grammar made of it."""

    token: int
    logprob: float
    likeliest: tuple[tuple[int, float], ...]  # tokens, and the log probability of each


@dataclass(frozen=True)
class Written:
    """What came of a step: hidden states and next logits, a row a sequence, and the novelty of all tokens."""

    hidden: Tensor  # [N, 1, H]
    logits: Tensor  # [N, V]
    novelty: Tensor | None  # [R], if asked for
    places: Several[Several[int]] | None = None  # in it, of each sequence's tokens; else the sequence's row


class SequenceError(Exception):
    """What went wrong, its cause, went wrong for one sequence alone: without it the others can go on."""

    def __init__(self, sequence: "Sequence") -> None:
        super().__init__("one sequence of a batch failed")
        self.sequence = sequence


@contextmanager
def naming(sequence: "Sequence") -> Iterator[None]:
    """Around what is done for one sequence: an error names it."""
    try:
        yield
    except Exception as error:
        raise SequenceError(sequence) from error


class Sequence:
    """One answer: the session it is written into, the next token's logits, and how many tokens may follow.

    What is `unwritten` of its prompt is written first, by the steps of the batch it is decoded in.
    """

    def __init__(
        self,
        session: PotSession,
        hidden: Tensor | None,
        exhausts_pot: bool,
        wanted: Generation,
        stop_ids: frozenset[int],
        index: int = 0,
        constraint: Constraint | None = None,
        unwritten: Several[int] = (),
    ) -> None:
        self.session, self.exhausts_pot, self.index = session, exhausts_pot, index
        self.wanted, self.left, self.stop_ids = wanted, wanted.max_new_tokens, stop_ids
        self.constraint, self.unwritten = constraint, deque(unwritten)
        self.score: TokenScore | None = None  # of the last token, if wanted
        self.overflows = False  # the first token was chosen by numbers that are none
        self._noise: Tensor | None = None
        model = session.model
        logits = (  # [1, V]; the very first token has no past
            torch.zeros(1, model.vocabulary, device=model.device)
            if hidden is None
            else model.logits(hidden[:, -1])
        )
        self.next_logits = logits, 0  # of a step's sequences [N, V], and the row that is this one's
        self.source = wanted.generator(logits.device)
        self.needs_novelty = "novelty" in session.needs and not exhausts_pot

    @property
    def logits(self) -> Tensor:
        """Logits [1, V] of the next token."""
        step, row = self.next_logits
        return step[row : row + 1]

    @property
    def is_first(self) -> bool:
        """Say whether the next token is the answer's first."""
        return self.left == self.wanted.max_new_tokens and not self.unwritten

    @property
    def is_full(self) -> bool:
        """Say whether one more token means distilling after it."""
        return self.session.is_full(self.exhausts_pot)

    @property
    def at_fixed_shapes(self) -> bool:
        """Say whether tokens may be written at fixed shapes, as captured graphs want."""
        return self.session.at_fixed_shapes(self.exhausts_pot)

    def noise(self) -> Tensor:
        """Noise [1, V] that the next token is drawn with: the same until `note`, if a step is made again."""
        if self._noise is None:
            made = torch.empty(self.logits.shape, dtype=torch.float32, device=self.source.device)
            self._noise = made.exponential_(1, generator=self.source)
        return self._noise

    def note(self, token: int, score: TokenScore | None = None) -> None:
        """Take note of the next token, once the host knows it, with its score if one is wanted."""
        if self.constraint is not None:
            self.constraint.take(token)
        self.score, self._noise = score, None

    def advance(self, token: int) -> None:
        """Write a token alone, distilling when that fills the pot."""
        self.session.flush()
        hidden = self.session.advance(token, self.exhausts_pot)
        self.next_logits = self.session.model.logits(hidden[:, -1]), 0

    def take(self, step: Written, row: int, counted: bool) -> None:
        """Go on after tokens that were written in a row of a step; `counted` if the pot knows of them."""
        session, self.next_logits = self.session, (step.logits, row)
        novelty = step.novelty if self.needs_novelty else None
        if counted:
            session.mark_written(step.hidden[row : row + 1])
            if novelty is not None:
                session.pot.note_novelty(novelty[None, row : row + 1])
            return
        session.mark_written()
        uncounted, places = session.uncounted, step.places[row] if step.places else [row]
        uncounted.count, uncounted.hidden = uncounted.count + len(places), (step.hidden, row)
        if novelty is not None:
            uncounted.novelty += [(novelty, place) for place in places]
