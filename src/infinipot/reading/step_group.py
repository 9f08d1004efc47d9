"""One step of several sequences: a token of each is written, and of prompts several.

Tokens are rows of one forward. A sequence's last token of the step has the sequence's row; the tokens of a
prompt before it are further rows of the same pot, which see each other's entries. So a prompt is written at
the same shapes as answers are, captured like them, and nothing is computed for it alone.
"""

from collections.abc import Sequence as Several
from contextlib import ExitStack
from itertools import accumulate, islice, pairwise
from threading import RLock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from infinipot.core.cuda.capturing import to_device
from infinipot.core.cuda.graphs import Graphs
from infinipot.core.pot import Pot
from infinipot.core.rows import FixedRows, Rows
from infinipot.core.scores import surprise
from infinipot.reading.model import Model
from infinipot.reading.next_tokens import logits_of
from infinipot.reading.sequence import Sequence, Written, naming

SIZES = 24  # graphs of decoding: powers of two of sequences, and shared ones, for pots of a kind or two
SHARED = (64, 128, 256)  # rows of a step that writes several tokens of a prompt: few sizes, all captured
MOST_SLOTS = 2**20  # rows times slots of such a step: its attention takes memory for all of them
POTS = 8  # full pots that the further rows of a step may read at least
NOBODY = (0, -1, 1)  # token, fill, position less fill of a row that is padding
GRAPHS: WeakKeyDictionary[Model, Graphs] = WeakKeyDictionary()  # of decoding, for all pots of a model
_ONE_AT_A_TIME = RLock()  # held by the thread that decodes: graphs' inputs and outputs are shared by all pots
_COLUMNS: WeakKeyDictionary[Pot, tuple[tuple[int, int, int], Tensor]] = WeakKeyDictionary()  # addresses


class StepGroup:
    """Sequences whose pots are written together: `prompts` are the tokens of each that are known before.

    A sequence that has none, as all have where nothing is given, gets its next token, one.
    """

    def __init__(self, sequences: Several[Sequence], prompts: Several[Several[int]] = ()) -> None:
        self.sequences = list(sequences)
        self._prompts = list(prompts or [()] * len(self.sequences))
        self.prompted = any(self._prompts)
        sessions = [sequence.session for sequence in sequences]
        self.model, self.pots = sessions[0].model, [session.pot for session in sessions]
        self.at_fixed_shapes = at_fixed_shapes(self.sequences)
        if self.at_fixed_shapes:
            self.slots = max(pot.pot_layers[0].capacity for pot in self.pots)
            for session, pot in zip(sessions, self.pots, strict=True):
                if pot.pot_layers[0].capacity < self.slots:  # pots that grow get one shape
                    session.flush()
                    pot.reserve(self.slots)
            self.by_address = FixedRows.serves(self.pots[0])
            self.shared = any(len(prompt) > 1 for prompt in self._prompts)
            self.state = self._state()

    def _state(self) -> Tensor:
        """See `FixedRows`; padded, so that few graphs serve every number of rows."""
        numbers, before = list[tuple[int, int, int]](), list[tuple[int, int, int]]()
        self._pots = list(self.pots)  # of all rows
        for one, pot, prompt in zip(self.sequences, self.pots, self._prompts, strict=True):
            fill, ahead = pot.fill + one.session.uncounted.count, pot.position - pot.fill
            rows = [(token, fill + index, ahead) for index, token in enumerate(prompt or (0,))]
            numbers.append(rows.pop())
            before += rows
            self._pots += [pot] * len(rows)
        numbers += before
        columns = [_addresses(pot) for pot in self._pots]
        if self.by_address:
            padding = self._padded(len(numbers)) - len(numbers)
            numbers, columns = numbers + [NOBODY] * padding, columns + columns[:1] * padding
        state = torch.cat((torch.tensor(numbers).T, torch.stack(columns, dim=1)))
        return to_device(state, self.pots[0].pot_layers[0].keys.device)

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Written:
        """Write a token [N] each, of prompts their own; return what came of it, a row for each sequence."""
        scored = any(sequence.needs_novelty for sequence in self.sequences)
        if not self.at_fixed_shapes:
            novelty = surprise(logits_of(self.sequences), tokens) if scored else None
            return Written(*self._plain(tokens), novelty)
        known, told = logits_of(self.sequences) if scored else None, self._told(tokens)
        hidden, logits = self._fixed(told)
        found = None if known is None else self._novelty(told, known, logits)
        many = len(self.sequences)
        return Written(hidden[:many], logits[:many], found, self._places() if self.shared else None)

    def _told(self, tokens: Tensor) -> Tensor:
        """Tokens of all rows [R]: the sequences' next ones, unless a prompt says which."""
        if not self.prompted:
            return tokens
        rows, many = self.state[0, : len(self._pots)].clone(), len(tokens)
        known = to_device(torch.tensor([bool(prompt) for prompt in self._prompts]), rows.device)
        rows[:many] = torch.where(known, rows[:many], tokens)
        return rows

    def _places(self) -> list[list[int]]:
        """Rows of each sequence's tokens, in the order of the tokens."""
        more = [max(0, len(prompt) - 1) for prompt in self._prompts]
        begins = accumulate(more, initial=len(more))
        pairs = enumerate(zip(begins, more, strict=False))
        return [[*range(begin, begin + count), row] for row, (begin, count) in pairs]

    def _novelty(self, told: Tensor, known: Tensor, logits: Tensor) -> Tensor:
        """Novelty [R] of every row's token, by the logits of the token before, in this step or the last."""
        if not self.shared:
            return surprise(known, told)
        places = self._places()
        firsts = [(place[0], row) for row, place in enumerate(places)]
        others = [(row, len(known) + before) for place in places for before, row in pairwise(place)]
        rows, before = to_device(torch.tensor([firsts + others]), told.device)[0].T
        novelty = surprise(torch.cat((known, logits))[before], told[rows])
        return torch.empty_like(novelty).index_copy_(0, rows, novelty)

    def _plain(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        with ExitStack() as stack:
            for sequence, pot in zip(self.sequences, self.pots, strict=True):
                with naming(sequence):
                    sequence.session.flush()
                observing = not sequence.exhausts_pot or "last" in pot.needs
                stack.enter_context(pot.writing(observing=observing))
            hidden = self.model.forward(tokens[:, None], Rows(self.pots))
        return hidden, self.model.logits(hidden[:, -1])

    def _fixed(self, told: Tensor) -> tuple[Tensor, Tensor]:
        self.state[0, : len(told)] = told
        key = ("decode", self.shared, self.slots, *self.state.shape)
        with _ONE_AT_A_TIME:
            graphs, state = self._graphs(), self.state
            if graphs and key not in graphs.captured:  # a graph of 8-bit pots reads one pot's tables
                graphs.held[key] = [layer.rotation for layer in self.pots[0].pot_layers]
            hidden, logits = graphs.run(key, [state], self._compute) if graphs else self._compute(state)
            kept = hidden.clone(), logits.clone()  # a graph's own are overwritten by its next replay
        self.state[1, : len(told)] += 1
        return kept

    def _padded(self, rows: int) -> int:
        """Rows of a step that holds so many: a power of two, or where prompts are written one of `SHARED`."""
        if not self.shared:
            return 1 << (rows - 1).bit_length()
        return min(size for size in shared_sizes(self.pots[0]) if size >= rows)

    def _graphs(self) -> Graphs | None:
        """Where addresses will do, the model's graphs serve any pots; else a lone pot has its own."""
        if self.by_address:
            return GRAPHS.setdefault(self.model, Graphs(most=SIZES))
        return self.sequences[0].session.graphs if len(self.sequences) == 1 else None

    def _compute(self, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.model.forward(state[0, :, None], FixedRows(self._pots, state, self.shared))
        return hidden, self.model.logits(hidden[:, -1])


def shared_sizes(pot: Pot) -> list[int]:
    """Rows that steps may have which write several tokens of a pot like this one; none where none may."""
    allowed = FixedRows.serves(pot) and FixedRows.may_share(pot)
    return [size for size in SHARED if allowed and size * pot.capacity <= MOST_SLOTS]


def prompt_parts(sequences: Several[Sequence]) -> list[list[int]]:
    """Tokens of prompts that one step writes, as many as there are rows for; none of what only answers.

    A row reads all of its pot, so prompts after long texts get fewer: all further rows together read about as
    much as the answers do, or as some full pots hold.
    """
    first = sequences[0].session.pot
    rows = max(shared_sizes(first), default=0) - len(sequences)
    entries = max(POTS * first.capacity, sum(one.session.pot.fill for one in sequences))
    parts = list[list[int]]()
    for one in sequences:
        each = one.session.pot.fill + len(one.unwritten) // 2 + 1
        more = max(0, min(len(one.unwritten) - 1, rows, entries // each))
        parts.append(list(islice(one.unwritten, 1 + more)))
        rows, entries = rows - more, entries - more * each
    return parts


def at_fixed_shapes(sequences: Several[Sequence]) -> bool:
    """Say whether all sequences may be written at fixed shapes, and their pots are of one kind."""
    alike = len({one.session.pot.bits for one in sequences}) == 1
    return alike and all(one.at_fixed_shapes for one in sequences)


def _addresses(pot: Pot) -> Tensor:
    """A pot's column of addresses; made once, as long as its layers stay where they are."""
    layers = pot.pot_layers
    now = layers[0].keys.data_ptr(), layers[-1].values.data_ptr(), layers[0].capacity
    known = _COLUMNS.get(pot)
    if known is None or known[0] != now:
        known = _COLUMNS[pot] = now, torch.tensor(FixedRows.addresses(pot))
    return known[1]
