"""Answers token by token, for one session or for several at once: a step takes one token for each sequence.

Where shapes are fixed the next step is already on its way when the host learns the last one's tokens: nothing
waits for the host, and what was computed for a sequence that stopped is simply not counted.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from contextlib import ExitStack
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from infinipot.core.cuda.graphs import Graphs
from infinipot.core.rows import FixedRows, Rows
from infinipot.core.scores import surprise
from infinipot.reading.model import Model
from infinipot.reading.sampling import sample
from infinipot.reading.sequence import Sequence

Written = tuple[Tensor, Tensor, Tensor | None]  # a token's hidden state, the next logits, the token's novelty
GRAPHS: WeakKeyDictionary[Model, Graphs] = WeakKeyDictionary()  # of decoding, for all pots of a model


def decode_capture_failure(model: Model) -> str:
    """Why decoding with this model is not captured any more; empty where it is, or was not tried."""
    return GRAPHS[model].reason if model in GRAPHS else ""


class StepGroup:
    """Sequences whose pots are written together."""

    def __init__(self, sequences: Several[Sequence]) -> None:
        self.sequences = list(sequences)
        sessions = [sequence.session for sequence in sequences]
        self.model, self.pots = sessions[0].model, [session.pot for session in sessions]
        self.at_fixed_shapes = all(sequence.at_fixed_shapes for sequence in sequences)
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
        columns = [
            [0, pot.fill + one.session.uncounted.count, pot.position - pot.fill, *FixedRows.addresses(pot)]
            for pot, one in zip(self.pots, self.sequences, strict=True)
        ]
        if self.by_address:
            wanted = 1 << (len(columns) - 1).bit_length()
            columns += [[0, self.slots, 0, *columns[0][3:]]] * (wanted - len(columns))
        state = torch.tensor(columns).T.contiguous()
        device = self.pots[0].pot_layers[0].keys.device
        return state.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else state

    @torch.no_grad()
    def step(self, tokens: Tensor) -> list[Written]:
        """Write a token [N] each; return what came of it for each sequence."""
        novelty = None
        if any(sequence.needs_novelty for sequence in self.sequences):
            novelty = surprise(_logits(self.sequences), tokens)
        hidden, logits = self._fixed(tokens) if self.at_fixed_shapes else self._plain(tokens)
        parts = [slice(row, row + 1) for row in range(len(self.sequences))]
        return [(hidden[part], logits[part], None if novelty is None else novelty[part]) for part in parts]

    def _plain(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        with ExitStack() as stack:
            for sequence, pot in zip(self.sequences, self.pots, strict=True):
                sequence.session.flush()
                observing = not sequence.exhausts_pot or "last" in pot.needs
                stack.enter_context(pot.writing(observing=observing))
            hidden = self.model.forward(tokens[:, None], Rows(self.pots))
        return hidden, self.model.logits(hidden[:, -1])

    def _fixed(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        self.state[0, : len(tokens)] = tokens
        key = ("decode", self.slots, self.state.shape[1])
        graphs = self._graphs()
        hidden, logits = graphs.run(key, [self.state], self._compute) if graphs else self._compute(self.state)
        self.state[1, : len(tokens)] += 1
        return hidden.clone(), logits.clone()  # a graph's own outputs are overwritten by its next replay

    def _graphs(self) -> Graphs | None:
        """Where addresses will do, the model's graphs serve any pots; else a lone pot has its own."""
        if self.by_address:
            return GRAPHS.setdefault(self.model, Graphs())
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
        self._ahead: list[Written] | None = None
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
        """Write the last tokens, and return the next of every sequence; None for one that has ended."""
        self._write()
        if not self.sequences:
            return []
        self._tokens, self._ahead = _sampled(self.sequences), None
        delivered = _delivery(self._tokens)
        if all(one.left > 1 and one.at_fixed_shapes and not one.is_full for one in self.sequences):
            if self._group is None or self._group.sequences != self.sequences:
                self._group = StepGroup(self.sequences)
            self._ahead = self._group.step(self._tokens)
        found: list[tuple[Sequence, int | None]] = []
        for row, (one, token) in enumerate(zip(list(self.sequences), delivered(), strict=True)):
            if token in one.stop_ids:
                self.drop(one)
                found.append((one, None))
                continue
            one.note(token)
            one.left -= 1
            one.session.set_pending(token)
            self._unwritten[one] = (row, token)
            found.append((one, token))
        return found

    def _write(self) -> None:
        """Bring the last step's tokens into the pots; a sequence that may have no more tokens goes."""
        for one in [one for one in self._unwritten if not one.left]:
            self.drop(one)
        going = [(row, one, token) for one, (row, token) in self._unwritten.items()]
        self._unwritten = {}
        if self._ahead is not None:
            for row, one, _ in going:
                one.take(*self._ahead[row], counted=False)
        elif going:
            self._group = None
            _advance(going, self._tokens)

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
    finally:
        batch.close()


def _logits(sequences: Several[Sequence]) -> Tensor:
    return sequences[0].logits if len(sequences) == 1 else torch.cat([one.logits for one in sequences])


def _sampled(sequences: Several[Sequence]) -> Tensor:
    """The next token of every sequence [N], on the device."""
    if all(one.wanted.temperature == 0 for one in sequences):
        rows = [one.allowed_logits() for one in sequences]
        return sample(rows[0] if len(rows) == 1 else torch.cat(rows))
    return torch.cat([one.sample() for one in sequences])


def _delivery(tokens: Tensor) -> Callable[[], list[int]]:
    """Send tokens on their way to the host; the function returned waits for them."""
    if tokens.device.type != "cuda":
        return tokens.tolist
    host, arrived = tokens.to("cpu", non_blocking=True), torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record()

    def delivered() -> list[int]:
        arrived.synchronize()
        return host.tolist()

    return delivered


def _advance(going: list[tuple[int, Sequence, int]], tokens: Tensor) -> None:
    """One token further without looking ahead: together where that can be, one by one where not."""
    alone = [one for one in going if one[1].is_full]
    rest = [one for one in going if not one[1].is_full]
    if len(rest) == 1 and not rest[0][1].at_fixed_shapes:
        alone, rest = alone + rest, []
    for _, sequence, token in alone:
        sequence.advance(token)
    if rest:
        group = StepGroup([sequence for _, sequence, _ in rest])
        written = group.step(tokens[[row for row, _, _ in rest]])
        for (_, sequence, _), found in zip(rest, written, strict=True):
            sequence.take(*found, counted=not group.at_fixed_shapes)
