"""Answers token by token, for one session or for several at once: a step has one token for each sequence.

Where shapes are fixed the next step is already on its way when the host learns the last one's tokens: nothing
waits for the host, and what was computed for a sequence that stopped is simply not counted.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Several
from itertools import islice

import torch
from torch import Tensor

from infinipot.common.out_of_memory import out_of_memory
from infinipot.core.cuda.capturing import to_device
from infinipot.reading.next_tokens import NextTokens
from infinipot.reading.sequence import Sequence, SequenceError, Written, naming
from infinipot.reading.step_group import StepGroup, at_fixed_shapes, prompt_parts


class DecodeBatch:
    """Sequences that are decoded together, a token each at every step; they come and go between steps."""

    def __init__(self, sequences: Several[Sequence] = ()) -> None:
        self.sequences = list(sequences)
        self._unwritten: dict[Sequence, tuple[int, list[int]]] = {}  # row and tokens of the last step
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

        A sequence whose prompt is not all written has none yet: the prompt's next tokens are its next ones.
        A step that raised, for want of memory say, can be made again, without a sequence if need be: the
        others say what they would have said.
        """
        self._write()
        if not self.sequences:
            return []
        chosen = NextTokens(self.sequences)
        self._tokens = self._prompted(chosen.tokens)
        prompts = self._run_ahead()
        found: list[tuple[Sequence, int | None]] = []
        told = chosen.on_host()
        for row, (one, (token, score)) in enumerate(zip(list(self.sequences), told, strict=True)):
            if prompt := prompts[row]:
                for _ in prompt:
                    one.unwritten.popleft()
                one.session.set_pending(prompt)
                self._unwritten[one] = (row, prompt)
                continue
            if token in one.stop_ids:
                self.drop(one)
                found.append((one, None))
                continue
            one.note(token, score)
            one.left -= 1
            one.session.set_pending([token])
            self._unwritten[one] = (row, [token])
            found.append((one, token))
        return found

    def _prompted(self, tokens: Tensor) -> Tensor:
        """The next tokens [N] with those of prompts in their places."""
        if not any(one.unwritten for one in self.sequences):
            return tokens
        told = torch.tensor([one.unwritten[0] if one.unwritten else -1 for one in self.sequences])
        told = to_device(told, tokens.device)
        return torch.where(told < 0, tokens, told)

    def _run_ahead(self) -> list[list[int]]:
        """Begin the next step at fixed shapes; a sequence whose last token this is takes part for nothing.

        Returns the tokens of prompts that are on their way, or to be written next; none of what answers.
        """
        every, self._ahead = self.sequences, None
        one_each = [list(islice(one.unwritten, 1)) for one in every]
        if all(one.left <= 1 and not one.unwritten for one in every):
            return one_each
        if any(one.is_full for one in every) or not at_fixed_shapes(every):
            return one_each
        group, prompts = self._group, prompt_parts(every) if any(one_each) else one_each
        if group is None or group.sequences != every or group.prompted or any(prompts):
            group = StepGroup(every, prompts)
        try:
            self._ahead, self._group = group.step(self._tokens), group
        except Exception as error:
            self._group = None
            if not out_of_memory(error):
                raise
            return one_each  # the tokens are chosen: the next step writes them, or says that it cannot
        return prompts

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
        going = [(one, row, tokens) for one, (row, tokens) in self._unwritten.items()]
        alone = [part for part in going if part[0].is_full]
        rest = [part for part in going if not part[0].is_full]
        if len(rest) == 1 and not rest[0][0].at_fixed_shapes:
            alone, rest = alone + rest, []
        for one, _, (token,) in alone:
            with naming(one):
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
