"""One pot and the forward passes into it: tokens are written, scored, and distilled when the pot is full.

Knows tokens, not text. Whatever repeats at fixed shapes is captured here.
"""

from copy import copy
from functools import partial
from typing import Self

import torch
from torch import Tensor

from infinipot.core.config import PotConfig, ReadingMode
from infinipot.core.cuda.capturing import Pace, to_device
from infinipot.core.cuda.graphs import Graphs, cycle_obstacle, decode_obstacle
from infinipot.core.distill import distill
from infinipot.core.pot import Pot
from infinipot.core.rows import FixedRows
from infinipot.core.state import State, damaged, joined
from infinipot.policies.base import Policy
from infinipot.reading.held_words import HeldWords
from infinipot.reading.model import Model
from infinipot.reading.plan import BLOCK, CAPTURE_AFTER, RECENT, CyclePlan
from infinipot.reading.recording import Recording
from infinipot.reading.stage import Stage
from infinipot.reading.state import HeadAndTail, ReaderState, Uncounted
from infinipot.reading.surprise import surprise
from infinipot.text.sentences import Sentences, Since


class PotSession:
    """A model and the pot it writes into, by one policy, one size and one way of reading."""

    def __init__(self, model: Model, policy: Policy | None, config: PotConfig, mode: ReadingMode) -> None:
        self.model, self.policy, self.config, self.mode = model, policy, config, mode
        self.needs = policy.needs if policy else frozenset()
        self.catalyst: list[int] = []
        self.block = BLOCK  # most tokens read at once
        self.pot = self._new_pot()
        self.held_words = HeldWords()
        self.recording: Recording | None = None  # set before reading, it sees what every cycle keeps
        self.state = self._new_state()
        self.uncounted = Uncounted()
        self.capture_after = CAPTURE_AFTER
        # Why nothing is captured; empty where it is.
        self.capture_obstacle = model.obstacle or cycle_obstacle(self.pot, model.device)
        self.graphs = None if self.capture_obstacle else Graphs(self.pot)
        self.sentences: Sentences | None = None  # set where the policy asks for them
        self.stage: Stage | None = None  # set where many sessions share what is captured
        self.decodes_captured = not (model.obstacle or decode_obstacle(self.pot, model.device))
        self.pace = Pace(model.device)

    def _new_pot(self) -> Pot:
        config = self.config
        pot = self.model.new_pot(config.capacity, config.kept, self.mode, config.pot_bits)
        pot.needs, pot.window = self.needs, self.policy.last if self.policy else 1
        for layer in pot.pot_layers:
            layer.numbered = "sentence" in self.needs
        pot.lengths = frozenset({1, BLOCK, min(BLOCK, self.config.capacity - self.config.kept)})
        return pot

    def _new_state(self) -> ReaderState:
        cut = self.mode.prompt == "truncate"
        return ReaderState(head_tail=HeadAndTail(self.config.capacity) if cut else None)

    @property
    def distils(self) -> bool:
        """Say whether the pot is distilled whenever it is full."""
        return self.policy is not None and self.mode.distil == "full"

    @property
    def fills_tail(self) -> bool:
        """Say whether as much as fits is left where a text ends."""
        return self.distils and self.config.tail == "fill"

    @property
    def space(self) -> int:
        """Tokens that fit beside the catalyst, or may be taken at once where nothing has to fit."""
        return self.config.capacity - len(self.catalyst) - self.pot.fill if self.distils else BLOCK

    # Content: forked, saved, loaded, put back ------------------------------------

    def fork(self) -> Self:
        """Return an independent session with the same content."""
        self.flush()
        twin = copy(self)
        twin.pot, twin.state, twin.held_words = self.pot.fork(), self.state.copy(), self.held_words.copy()
        twin.uncounted, twin.recording = Uncounted(), None
        if self.graphs is not None:
            twin.graphs = Graphs(twin.pot, self.graphs.capture)
        return twin

    def put_back(self, before: Self) -> None:
        """Take over a fork's content in place: graphs know this pot's addresses."""
        self.uncounted, self.catalyst = Uncounted(), before.catalyst
        self.pot.restore(before.pot)
        self.state, self.held_words = before.state.copy(), before.held_words.copy()

    def clear(self) -> None:
        """Forget everything read and said; the pot's memory and what was captured for it stay."""
        self.uncounted = Uncounted()  # nothing is computed: also after memory ran out
        self.pot.clear()
        self.held_words.clear()
        self.state = self._new_state()

    def forget_slots(self) -> None:
        """Empty the pot; what was read stays counted."""
        read, seconds, cycles = self.state.tokens_read, self.state.seconds, self.pot.cycles
        self.clear()
        self.state.tokens_read, self.state.seconds, self.pot.cycles = read, seconds, cycles

    def saved(self) -> State:
        """Return everything this session knows; tensors are views, so use them before it goes on."""
        self.flush()
        found = joined({"pot": self.pot.state(), "trace": self.held_words.state(self.pot)})
        own = self.state.saved()
        return State({**found.tensors, **own.tensors}, {**found.numbers, **own.numbers})

    def load(self, state: State) -> None:
        """Take over a saved state in place; one that does not fit leaves the session empty, and says why."""
        self.clear()
        cut = self.config.capacity if self.state.head_tail else None
        try:
            known = ReaderState.loaded(state, self.model.vocabulary, cut, self._readable)
            self.pot.load(state.part("pot"), self.model.device)
            self.held_words.restore(state.part("trace"))
        except BaseException:
            self.clear()
            raise
        self.state = known

    def _readable(self, hidden: Tensor) -> Tensor:
        """A hidden state [1, 1, H], if the model's head can read it: it may come from a stranger's file."""
        hidden = hidden.to(self.model.device)
        try:
            known = hidden.shape[:2] == (1, 1) and self.model.logits(hidden).shape[:2] == (1, 1)
        except (RuntimeError, IndexError) as error:
            raise damaged("last token is of another model") from error
        if not known:
            raise damaged("last token is damaged")
        return hidden

    # One forward ----------------------------------------------------------------

    def write(
        self, tokens: list[int], distil: bool = False, recent: int = 0, budget: int = 0, scored: bool = True
    ) -> Tensor:
        """Run tokens, and the catalyst in the same pass if the pot is to be distilled after them to `budget`.

        Returns the last token's hidden state [1, 1, H]. Novelty is not computed for tokens that will never
        be `scored`: a final answer's. Without a budget |C| slots are left.
        """
        plan = self._plan(len(tokens), distil, recent, budget or self.config.kept, scored)
        rows, sentence = self._rows(tokens, self.catalyst if distil else [])
        ids = to_device(torch.tensor(rows, dtype=torch.long), self.model.device)
        inputs = [ids] if self.state.last_hidden is None else [ids, self.state.last_hidden]
        if self.graphs is None or self.recording is not None or not plan.is_long:
            hidden = self._plainly(plan, inputs)
        else:
            hidden = self.stage.run(self.pot, plan, inputs) if self.stage else self.repeat(plan, inputs)
        if tokens:
            self.state.pending, self.state.last_hidden = [], hidden
            self.state.sentence = sentence
            self.held_words.add(tokens, self.pot)
        if distil:
            self.state.has_undistilled = False
            self.state.tail_was_filled = plan.budget > self.config.kept
        return hidden

    def _rows(self, tokens: list[int], catalyst: list[int]) -> tuple[list[list[int]], Since]:
        """The ids of a forward and, where the policy asks, the numbers of their sentences; the last one."""
        rows, sentence = [[*tokens, *catalyst]], self.state.sentence
        if self.sentences is not None:
            numbers, sentence = self.sentences.numbers(tokens, sentence)
            rows.append([*numbers, *([0] * len(catalyst))])
        return rows, sentence

    @torch.no_grad()
    def repeat(self, plan: CyclePlan, inputs: list[Tensor]) -> Tensor:
        """Carry out a plan that comes again and again: captured before long, then replayed.

        Forward and distillation are graphs of their own: what is left at a text's end hardly comes twice,
        but the forward before does, and it is what takes time and memory.
        """
        if self.graphs is None:
            return self._plainly(plan, inputs)
        compute, often = partial(self._scored_forward, plan), self.capture_after
        found, *scores = self.graphs.run(plan.forward, inputs, compute, often)
        hidden: Tensor = found.clone()  # a graph's result lasts until the next one runs: they share memory
        if plan.distil and plan.budget <= self.config.kept:
            self.graphs.run(plan.distillation, scores, partial(self._distil_by, plan), often)
        elif plan.distil:
            self._distil_by(plan, *scores)
        return hidden

    @torch.no_grad()
    def _plainly(self, plan: CyclePlan, inputs: list[Tensor]) -> Tensor:
        """Carry out a plan without graphs; return the last token's hidden state."""
        hidden = self._forward(plan, *inputs)
        if plan.distil:
            self.distil(plan.budget, plan.recent)
        return hidden

    def _plan(self, tokens: int, distil: bool, recent: int, budget: int, scored: bool) -> CyclePlan:
        """Plan one forward of so many tokens from where the pot is now."""
        recent = min(recent, budget // 4, budget - self.config.opening)
        first, follows = self.pot.pot_layers[0], self.state.last_hidden is not None
        now, catalyst = (first.fill, first.anchored, follows), len(self.catalyst) if distil else 0
        return CyclePlan(tokens, catalyst, distil, budget, recent, scored, *now)

    def _scored_forward(self, plan: CyclePlan, *inputs: Tensor) -> list[Tensor]:
        """The forward's hidden state and, where a catalyst was run, the scores [L, B, Hkv, S] it gave."""
        hidden = self._forward(plan, *inputs)
        scores = [layer.catalyst for layer in self.pot.pot_layers if layer.catalyst is not None]
        return [hidden, torch.stack(scores)] if plan.catalyst and scores else [hidden]

    def _distil_by(self, plan: CyclePlan, scores: Tensor | None = None) -> None:
        """Distil by scores that a graph may have written: where they lie is known to the pot only then."""
        for layer, score in zip(self.pot.pot_layers, scores if scores is not None else (), strict=False):
            layer.catalyst = score
        self.distil(plan.budget, plan.recent)

    def _forward(self, plan: CyclePlan, ids: Tensor, before: Tensor | None = None) -> Tensor:
        """Write ids [1, n], or [2, n] with sentences, after the hidden state before; return the last's."""
        hidden, count = before if before is not None else torch.empty(0), plan.tokens
        ids, sentences = ids[:1], ids[1:, :count]
        if ids.shape[1]:
            with self.pot.writing(plan.catalyst, observing=plan.scored or "last" in self.needs):
                hidden = self.model.forward(ids, self.pot)[:, :count]
        if count and plan.scored and "novelty" in self.needs:
            self.pot.note_novelty(surprise(self.model, hidden, ids[:, :count], before))
        if count and len(sentences):
            self.pot.note_sentences(sentences)
        return hidden[:, -1:].clone()  # a view would keep a chunk's hidden states alive

    def distil(self, budget: int, recent: int = 0) -> None:
        """Reduce the pot to `budget` entries by the policy."""
        recent = max(recent, min(self.config.closing, budget - self.config.opening))
        if self.policy is not None:
            observer = self.recording.cycle if self.recording else None
            distill(self.pot, self.policy, budget, self.config.opening, recent, observer)

    # Tokens of an answer, one by one --------------------------------------------

    def is_full(self, exhausts_pot: bool) -> bool:
        """Say whether one more token means distilling; an answer that may fill the pot is never distilled."""
        fill = self.pot.fill + self.uncounted.count
        return not exhausts_pot and fill + 1 >= self.config.capacity - len(self.catalyst)

    def at_fixed_shapes(self, exhausts_pot: bool) -> bool:
        """Say whether tokens may be written at fixed shapes, as captured graphs want."""
        if self.graphs is not None and not self.needs & {"last", "running"}:
            return True
        # What an answer that fills the pot attended to is never asked; the model's own graphs serve there.
        return exhausts_pot and self.decodes_captured and FixedRows.serves(self.pot)

    @property
    def joins_batches(self) -> bool:
        """Say whether a prompt may be written by the steps of other answers, captured as they are."""
        return self.state.head_tail is None and self.at_fixed_shapes(False) and FixedRows.serves(self.pot)

    def advance(self, token: int, exhausts_pot: bool) -> Tensor:
        """Write a token alone, distilling when that fills the pot; return its hidden state [1, 1, H]."""
        full = self.is_full(exhausts_pot)
        return self.write([token], distil=full, recent=RECENT, scored=not exhausts_pot)

    def set_pending(self, tokens: list[int]) -> None:
        """Remember tokens that the user saw and the pot has not."""
        if self.state.head_tail is not None:
            self.state.head_tail.push(tokens)
        else:
            self.state.pending = tokens

    def mark_written(self, hidden: Tensor | None = None) -> None:
        """Mark the pending tokens as written; `hidden` is the last one's, if the pot has counted them."""
        self.held_words.add(self.state.pending, self.pot)
        if self.sentences is not None:
            numbers, self.state.sentence = self.sentences.numbers(self.state.pending, self.state.sentence)
            if hidden is None:
                self.uncounted.sentences += numbers
            else:
                self.pot.note_sentences(torch.tensor([numbers]))
        self.state.pending = []
        if hidden is not None:
            self.state.last_hidden = hidden

    def flush(self) -> None:
        """Let the pot count what captured graphs have written."""
        found, self.uncounted = self.uncounted, Uncounted()
        if found.count:
            rows = [step[row] for step, row in found.novelty]
            noted = torch.stack(rows) if rows else torch.zeros(found.count)
            for layer in self.pot.pot_layers:
                layer.commit(found.count, noted)
            if found.sentences:
                self.pot.note_sentences(torch.tensor([found.sentences]))
            if found.hidden is not None:
                step, row = found.hidden
                self.state.last_hidden = step[row : row + 1].clone()
