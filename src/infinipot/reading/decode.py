"""Answers token by token, for one session or for several at once: a step takes one token for each sequence.

Where shapes are fixed the next step is already on its way when the host learns the last one's tokens: nothing
waits for the host, and what was computed for a sequence that stopped is simply not counted.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Several
from contextlib import ExitStack, contextmanager
from threading import RLock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from infinipot.common.out_of_memory import out_of_memory
from infinipot.core.cuda.capturing import to_device
from infinipot.core.cuda.graphs import Graphs
from infinipot.core.pot import Pot
from infinipot.core.rows import FixedRows, Rows
from infinipot.core.scores import surprise
from infinipot.reading.model import Model
from infinipot.reading.next_tokens import NextTokens, logits_of
from infinipot.reading.sequence import Sequence, Written

SIZES = 16  # graphs of decoding: powers of two of sequences, for pots of a kind or two
GRAPHS: WeakKeyDictionary[Model, Graphs] = WeakKeyDictionary()  # of decoding, for all pots of a model
_ONE_AT_A_TIME = RLock()  # held by the thread that decodes: graphs' inputs and outputs are shared by all pots
_COLUMNS: WeakKeyDictionary[Pot, tuple[tuple[int, int, int], Tensor]] = WeakKeyDictionary()  # addresses


class SequenceError(Exception):
    """What went wrong, its cause, went wrong for one sequence alone: without it the others can go on."""

    def __init__(self, sequence: Sequence) -> None:
        super().__init__("one sequence of a batch failed")
        self.sequence = sequence


@contextmanager
def _for(sequence: Sequence) -> Iterator[None]:
    """Name the sequence that something was done for."""
    try:
        yield
    except Exception as error:
        raise SequenceError(sequence) from error


class StepGroup:
    """Sequences whose pots are written together."""

    def __init__(self, sequences: Several[Sequence]) -> None:
        self.sequences = list(sequences)
        sessions = [sequence.session for sequence in sequences]
        self.model, self.pots = sessions[0].model, [session.pot for session in sessions]
        self.at_fixed_shapes = _at_fixed_shapes(self.sequences)
        if self.at_fixed_shapes:
            self.slots = max(pot.pot_layers[0].capacity for pot in self.pots)
            for session, pot in zip(sessions, self.pots, strict=True):
                if pot.pot_layers[0].capacity < self.slots:  # pots that grow get one shape
                    session.flush()
                    pot.reserve(self.slots)
            self.by_address = FixedRows.serves(self.pots[0])
            self.state = self._state()

    def _state(self) -> Tensor:
        """See `FixedRows`; padded to a power of two, so that few graphs serve every number of sequences."""
        padding = (1 << (len(self.pots) - 1).bit_length()) - len(self.pots) if self.by_address else 0
        numbers = [
            (0, pot.fill + one.session.uncounted.count, pot.position - pot.fill)
            for pot, one in zip(self.pots, self.sequences, strict=True)
        ]
        numbers += [(0, self.slots, 0)] * padding
        columns = [_addresses(pot) for pot in self.pots]
        columns += columns[:1] * padding
        state = torch.cat((torch.tensor(numbers).T, torch.stack(columns, dim=1)))
        return to_device(state, self.pots[0].pot_layers[0].keys.device)

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Written:
        """Write a token [N] each; return what came of it, a row for each sequence."""
        novelty = None
        if any(sequence.needs_novelty for sequence in self.sequences):
            novelty = surprise(logits_of(self.sequences), tokens)
        hidden, logits = self._fixed(tokens) if self.at_fixed_shapes else self._plain(tokens)
        return Written(hidden, logits, novelty)

    def _plain(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        with ExitStack() as stack:
            for sequence, pot in zip(self.sequences, self.pots, strict=True):
                with _for(sequence):
                    sequence.session.flush()
                observing = not sequence.exhausts_pot or "last" in pot.needs
                stack.enter_context(pot.writing(observing=observing))
            hidden = self.model.forward(tokens[:, None], Rows(self.pots))
        return hidden, self.model.logits(hidden[:, -1])

    def _fixed(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        self.state[0, : len(tokens)] = tokens
        key = ("decode", self.slots, *self.state.shape)
        with _ONE_AT_A_TIME:
            graphs, state = self._graphs(), self.state
            hidden, logits = graphs.run(key, [state], self._compute) if graphs else self._compute(state)
            kept = hidden.clone(), logits.clone()  # a graph's own are overwritten by its next replay
        self.state[1, : len(tokens)] += 1
        return kept

    def _graphs(self) -> Graphs | None:
        """Where addresses will do, the model's graphs serve any pots; else a lone pot has its own."""
        if self.by_address:
            return GRAPHS.setdefault(self.model, Graphs(most=SIZES))
        return self.sequences[0].session.graphs if len(self.sequences) == 1 else None

    def _compute(self, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.model.forward(state[0, :, None], FixedRows(self.pots, state))
        return hidden, self.model.logits(hidden[:, -1])


class DecodeBatch:
    """Sequences that are decoded together, a token each at every step; they come and go between steps."""

    def __init__(self, sequences: Several[Sequence] = ()) -> None:
        self.sequences = list(sequences)
        self._unwritten: dict[Sequence, tuple[int, int]] = {}  # row and token of the last step
        self._tokens = torch.empty(0)
        self._ahead: Written | None = None
        self._group: StepGroup | None = None

    def add(self, sequence: Sequence) -> None:
        """Let a sequence join from the next step on."""
        self.sequences.append(sequence)

    def drop(self, sequence: Sequence) -> None:
        """Let a sequence go; its session knows all its tokens."""
        if sequence in self.sequences:
            self.sequences.remove(sequence)
            self._unwritten.pop(sequence, None)
            sequence.session.flush()

    def step(self) -> list[tuple[Sequence, int | None]]:
        """Write the last tokens, and return the next of every sequence; None for one that has ended.

        A sequence whose prompt is not all written has none yet: the prompt's next token is its next one.
        A step that raised, for want of memory say, can be made again, without a sequence if need be: the
        others say what they would have said.
        """
        self._write()
        if not self.sequences:
            return []
        chosen = NextTokens(self.sequences)
        self._tokens = self._prompted(chosen.tokens)
        self._run_ahead()
        found: list[tuple[Sequence, int | None]] = []
        told = chosen.on_host()
        for row, (one, (token, score)) in enumerate(zip(list(self.sequences), told, strict=True)):
            if one.unwritten:
                one.session.set_pending(one.unwritten[0])
                self._unwritten[one] = (row, one.unwritten.popleft())
                continue
            if token in one.stop_ids:
                self.drop(one)
                found.append((one, None))
                continue
            one.note(token, score)
            one.left -= 1
            one.session.set_pending(token)
            self._unwritten[one] = (row, token)
            found.append((one, token))
        return found

    def _prompted(self, tokens: Tensor) -> Tensor:
        """The next tokens [N] with those of prompts in their places."""
        if not any(one.unwritten for one in self.sequences):
            return tokens
        told = torch.tensor([one.unwritten[0] if one.unwritten else -1 for one in self.sequences])
        told = to_device(told, tokens.device)
        return torch.where(told < 0, tokens, told)

    def _run_ahead(self) -> None:
        """Begin the next step at fixed shapes; a sequence whose last token this is takes part for nothing."""
        every, self._ahead = self.sequences, None
        if all(one.left <= 1 and not one.unwritten for one in every):
            return
        if any(one.is_full for one in every) or not _at_fixed_shapes(every):
            return
        if self._group is None or self._group.sequences != every:
            self._group = StepGroup(every)
        try:
            self._ahead = self._group.step(self._tokens)
        except Exception as error:
            self._group = None
            if not out_of_memory(error):
                raise
            # The tokens are chosen and can be told; the next step writes them, or says that it cannot.

    def _write(self) -> None:
        """Bring the last step's tokens into the pots; a sequence that may have no more tokens goes."""
        for one in [one for one in self._unwritten if not one.left]:
            self.drop(one)
        if self._ahead is not None:
            for one, (row, _) in self._unwritten.items():
                one.take(self._ahead, row, counted=False)
            self._unwritten, self._ahead = {}, None
        elif self._unwritten:
            self._group = None
            self._advance()

    def _advance(self) -> None:
        """One token further without looking ahead: together where that can be, one by one where not."""
        going = [(one, row, token) for one, (row, token) in self._unwritten.items()]
        alone = [part for part in going if part[0].is_full]
        rest = [part for part in going if not part[0].is_full]
        if len(rest) == 1 and not rest[0][0].at_fixed_shapes:
            alone, rest = alone + rest, []
        for one, _, token in alone:
            with _for(one):
                one.advance(token)
            del self._unwritten[one]
        if rest:
            group = StepGroup([one for one, _, _ in rest])
            written = group.step(self._tokens[[row for _, row, _ in rest]])
            for row, (one, _, _) in enumerate(rest):
                one.take(written, row, counted=not group.at_fixed_shapes)
            self._unwritten = {}

    def close(self) -> None:
        """Let every sequence go."""
        for one in list(self.sequences):
            self.drop(one)


def decode(sequences: Several[Sequence]) -> Iterator[tuple[int, int]]:
    """Yield (sequence's index, token) until every sequence has stopped."""
    batch = DecodeBatch(sequences)
    try:
        while batch.sequences:
            for one, token in batch.step():
                if token is not None:
                    yield one.index, token
    except SequenceError as failed:
        raise failed.__cause__ or failed from None
    finally:
        batch.close()


def _addresses(pot: Pot) -> Tensor:
    """A pot's column of addresses; made once, as long as its layers stay where they are."""
    layers = pot.pot_layers
    now = layers[0].keys.data_ptr(), layers[-1].values.data_ptr(), layers[0].capacity
    known = _COLUMNS.get(pot)
    if known is None or known[0] != now:
        known = _COLUMNS[pot] = now, torch.tensor(FixedRows.addresses(pot))
    return known[1]


def _at_fixed_shapes(sequences: Several[Sequence]) -> bool:
    """Say whether all sequences may be written at fixed shapes, and their pots are of one kind."""
    alike = len({one.session.pot.bits for one in sequences}) == 1
    return alike and all(one.at_fixed_shapes for one in sequences)
