"""One pot, and the forward passes into it: tokens are written, scored, and distilled when the pot is full.

Knows tokens, not text: what is read and what is said is the reader's. Whatever repeats at
fixed shapes is captured here, and what decoding asks of a pot is answered here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from infinipot.core.config import DEFAULT_MODE, PotConfig, ReadingMode
from infinipot.core.cuda.graphs import Static
from infinipot.core.distill import Observer, distill
from infinipot.core.pot import Pot
from infinipot.core.rows import FixedRows, Rows
from infinipot.core.scores import novelty
from infinipot.errors import InputError
from infinipot.policies.base import Policy
from infinipot.reading.decode import Tail
from infinipot.reading.held_words import Trace
from infinipot.reading.recording import Recording

BLOCK = 2048  # most tokens in one forward: bounds activations when the pot is large
LONG = 512  # tokens from which on a forward without distillation is worth a graph
CAPTURE_AFTER = 4  # times a forward is made before it is captured: capturing costs as much as a few
RECENT = 64  # last slots that survive a distillation in the middle of an answer, so that it stays coherent


class Model(Protocol):
    """What the reader needs of a language model."""

    device: torch.device
    vocabulary: int
    obstacle: str  # why its forward cannot be captured; empty where it can

    def new_pot(self, capacity: int, keep: int, mode: ReadingMode = DEFAULT_MODE) -> Pot:
        """Return an empty pot with this model's layers."""

    def forward(self, tokens: Tensor, pot: Pot | Rows) -> Tensor:
        """Write tokens [B, n] into the pot and return their hidden states [B, n, H]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits [..., V] of hidden states [..., H]."""


class Writer:
    """A model and a pot it writes into."""

    def __init__(self, model: Model, policy: Policy | None, config: PotConfig, mode: ReadingMode) -> None:
        self.model, self.policy, self.config, self.mode = model, policy, config, mode
        self.needs = policy.needs if policy else frozenset()
        self.catalyst: list[int] = []
        self.pot = self._new_pot()
        self.trace = Trace()
        self.recording: Recording | None = None  # set before reading, it sees what every cycle keeps
        self._last: Tensor | None = None  # [B, 1, H] hidden state before the next token: its novelty needs it
        self._pending: list[int] = []  # tokens read, or said to the user, and not written yet
        self._fresh = False  # text was read since the last distillation
        self._fitted = False  # the last distillation left more than |C|, since a text ended
        # Why nothing is captured; empty where it is.
        self.capture_obstacle = model.obstacle or Static.obstacle(self.pot, model.device)
        self._static = None if self.capture_obstacle else Static(self.pot)
        self._steady = not (model.obstacle or Static.unsteady(self.pot, model.device))
        self.capture_after = CAPTURE_AFTER
        self._pace: torch.cuda.Event | None = None  # when the last forward but one is done
        self.tail = Tail(self.pot)

    def _new_pot(self) -> Pot:
        pot = self.model.new_pot(self.config.capacity, self.config.kept, self.mode)
        pot.needs, pot.window = self.needs, self.policy.last if self.policy else 1
        pot.lengths = frozenset({1, BLOCK, min(BLOCK, self.config.capacity - self.config.kept)})
        return pot

    @property
    def _drops(self) -> bool:
        """The pot is distilled whenever it is full."""
        return self.policy is not None and self.mode.distil == "full"

    def _space(self) -> int:
        """Tokens that fit beside the catalyst, or may be taken at once where nothing has to fit."""
        return self.config.capacity - len(self.catalyst) - self.pot.fill if self._drops else BLOCK

    def _settle(self, count: int, most: int, final: bool = False) -> None:
        """Before a question of `count` tokens and an answer of `most`, distil what was read last.

        With `fill`, only where they would have no room, or what is needed to go on; a text that is there as a
        whole stays so before a `final` question. Else, what was not distilled yet of a text that is not.
        """
        if not self._drops:
            return
        if self.config.tail == "fill":
            spare = 1 + len(self.catalyst)
            if count + most + (0 if final and not self.pot.cycles else spare) > self.pot.room:
                self._require(count, spare)
                budget = max(self.config.kept, self.config.capacity - count - most - spare)
                if budget < self.pot.fill:
                    self._write([], distil=True, recent=RECENT, budget=budget)
        elif self.config.tail == "distil" and self._fresh and self.pot.cycles:
            self._write([], distil=True, recent=RECENT)

    def _make_room(self, count: int, after: int) -> None:
        """Distil, harder than usual if need be, when `count` tokens and `after` more would not fit."""
        if count + after <= self.pot.room:
            return
        self._require(count, after)
        self._write([], distil=True, budget=min(self.config.kept, self.config.capacity - count - after))

    def _require(self, count: int, after: int) -> None:
        """Refuse tokens that would not fit beside even the smallest pot."""
        if not self.mode.grows and count + after + max(1, self.config.opening) > self.config.capacity:
            raise InputError(
                f"a question of {count} tokens is too long for a pot of {self.config.capacity}: "
                f"shorten it or use --capacity {self.config.kept + count + after}"
            )

    # One forward ----------------------------------------------------------------

    @torch.no_grad()
    def _write(
        self,
        tokens: Sequence[int],
        distil: bool = False,
        recent: int = 0,
        budget: int | None = None,
        scored: bool = True,
    ) -> Tensor:
        """Run tokens, and the catalyst in the same pass if the pot is to be distilled after them.

        Returns the last token's hidden state [1, 1, H].

        Novelty is not computed for tokens that will never be `scored`: a final answer's.
        """
        extra = self.catalyst if distil else []
        budget = self.config.kept if budget is None else budget
        recent = min(recent, budget // 4, budget - self.config.opening)
        ids = self._ids([*tokens, *extra])

        def compute(ids: Tensor, before: Tensor | None = None) -> Tensor:
            hidden = before if before is not None else torch.empty(0)
            if ids.shape[1]:
                with self.pot.writing(len(extra), observing=scored or "last" in self.needs):
                    hidden = self.model.forward(ids, self.pot)[:, : len(tokens)]
            if len(tokens) and scored and "novelty" in self.needs:
                self.pot.note_novelty(self._novelty(hidden, ids[:, : len(tokens)], before))
            if distil and self.policy is not None:
                distill(self.pot, self.policy, budget, self.config.opening, recent, self._observer)
            return hidden[:, -1:]

        steady = budget <= self.config.kept  # a text's end has a shape of its own
        if self._static is not None and self.recording is None and steady and (distil or len(tokens) >= LONG):
            first = self.pot.pot_layers[0]
            key = (len(tokens), len(extra), distil, budget, recent, scored, first.fill, first.anchored)
            inputs = [ids] if self._last is None else [ids, self._last]
            hidden: Tensor = self._static.run((*key, len(inputs)), inputs, compute, often=self.capture_after)
        else:
            hidden = compute(ids, self._last)
        if len(tokens):
            self._pending, self._last = [], hidden.clone()
            self.trace.add(tokens, self.pot)
        if distil:
            self._fresh, self._fitted = False, not steady
        return hidden

    @property
    def _observer(self) -> Observer | None:
        return self.recording.cycle if self.recording else None

    def _ids(self, tokens: list[int]) -> Tensor:
        """Tokens [1, n] on the device, without waiting for it."""
        ids = torch.tensor([tokens], dtype=torch.long)
        if self.model.device.type != "cuda":
            return ids.to(self.model.device)
        return ids.pin_memory().to(self.model.device, non_blocking=True)

    def _novelty(self, hidden: Tensor, tokens: Tensor, last: Tensor | None) -> Tensor:
        """Novelty [B, n] of tokens; the very first has no past, so every token was equally likely."""
        if last is None:
            first = torch.full_like(tokens[:, :1], self.model.vocabulary, dtype=torch.float32).log()
            rest = novelty(hidden[:, :-1], tokens[:, 1:], self.model.logits, self.model.vocabulary)
            return torch.cat((first.to(rest.device), rest), dim=1)
        before = torch.cat((last, hidden[:, :-1]), dim=1)
        return novelty(before, tokens, self.model.logits, self.model.vocabulary)

    def _keep_pace(self, last: bool = False) -> None:
        """Wait until the device is at most one forward behind, or not at all: then it never waits for us."""
        if self.model.device.type == "cuda":
            before, self._pace = self._pace, torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._pace.record()
            for event in (before, self._pace) if last else (before,):
                if event is not None:
                    event.synchronize()

    # What decoding asks (decoding.py) -------------------------------------------

    @property
    def graphs(self) -> Static | None:
        """What is captured for this pot, where anything is."""
        return self._static

    def full(self, brim: bool) -> bool:
        """Say whether one more token means distilling after it."""
        fill = self.pot.fill + self.tail.count
        return not brim and fill + 1 >= self.config.capacity - len(self.catalyst)

    def fixed(self, brim: bool) -> bool:
        """Say whether tokens may be written at fixed shapes; after an answer to the brim nobody will ask
        what its tokens attended to, and graphs of the model's serve where the pot has none."""
        if self._static is not None and not self.needs & {"last", "running"}:
            return True
        return brim and self._steady and FixedRows.serves(self.pot)

    def noting(self, brim: bool) -> bool:
        """Say whether somebody will ask how novel an answer's tokens were."""
        return "novelty" in self.needs and not brim

    def heard(self, hidden: Tensor | None = None) -> None:
        """Forget it: it is written, and the pot knows if its hidden state is given."""
        self.trace.add(self._pending, self.pot)
        self._pending = []
        if hidden is not None:
            self._last = hidden

    def advance(self, token: int, brim: bool) -> Tensor:
        """Write a token alone, distilling when that fills the pot; return its hidden state [1, 1, H]."""
        return self._write([token], distil=self.full(brim), recent=RECENT, scored=not brim)

    def end(self) -> None:
        """Bring what was written at fixed shapes to the pot's knowledge."""
        hidden = self.tail.settle()
        if hidden is not None:
            self._last = hidden.clone()
