"""Answers token by token, for one reader or for several at once.

Every round takes one token for each voice. Where shapes are fixed the next round is
already on its way when the host learns what was said: nothing waits for the host,
and what was computed for a voice that stopped is simply not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from infinipot.core.cuda.graphs import Static
from infinipot.core.pot import Pot
from infinipot.core.rows import FixedRows, Rows
from infinipot.core.scores import surprise
from infinipot.reading.sampling import Generation, sample


class Forward(Protocol):
    """What decoding needs of a language model."""

    def forward(self, tokens: Tensor, pot: Pot | Rows) -> Tensor:
        """Write tokens [N, 1] and return their hidden states [N, 1, H]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits [..., V] of hidden states [..., H]."""


@dataclass
class Tail:
    """What was written after a pot's last slot at fixed shapes and the pot has not been told of."""

    pot: Pot
    count: int = 0
    novelty: list[Tensor] = field(default_factory=list)  # [1] each, or nothing where nobody will ask
    hidden: Tensor | None = None  # [1, 1, H] of the last token

    def settle(self) -> Tensor | None:
        """Tell the pot; return the hidden state before the next token if anything was written."""
        if not self.count:
            return None
        novelty = torch.cat(self.novelty) if self.novelty else torch.zeros(self.count)
        for layer in self.pot.pot_layers:
            layer.settle(self.count, novelty)
        self.count, self.novelty = 0, []
        return self.hidden


class Speaker(Protocol):
    """A reader, as decoding sees it."""

    pot: Pot
    tail: Tail

    @property
    def model(self) -> Forward:
        """Its language model."""

    @property
    def graphs(self) -> Static | None:
        """What is captured for its pot, where anything is."""

    @property
    def stops(self) -> frozenset[int]:
        """Tokens that end an answer."""

    def open(self, prompt: Sequence[int], most: int, final: bool) -> tuple[Tensor, bool]:
        """Write the prompt; return its last hidden state and whether the answer may fill the pot."""

    def full(self, brim: bool) -> bool:
        """Say whether one more token means distilling first."""

    def say(self, token: int) -> None:
        """Remember a token that the user saw and the pot has not."""

    def heard(self, hidden: Tensor | None = None) -> None:
        """Forget it: it is written, and the pot knows if its hidden state is given."""

    def advance(self, token: int, brim: bool) -> Tensor:
        """Write a token alone, distilling when that fills the pot; return its hidden state."""

    def fixed(self, brim: bool) -> bool:
        """Say whether tokens may be written at fixed shapes."""

    def noting(self, brim: bool) -> bool:
        """Say whether somebody will ask how novel an answer's tokens were."""

    def end(self) -> None:
        """Bring what was written at fixed shapes to the pot's knowledge."""


class Voice:
    """One answer on its way."""

    def __init__(
        self, index: int, reader: Speaker, prompt: Sequence[int], wanted: Generation, final: bool
    ) -> None:
        self.index, self.reader, self.left = index, reader, wanted.max_new_tokens
        hidden, self.brim = reader.open(prompt, wanted.max_new_tokens, final)
        self.wanted, self.source = wanted, wanted.generator(hidden.device)
        self.logits = reader.model.logits(hidden[:, -1])  # [1, V] of the next token
        self.noting = reader.noting(self.brim)

    def sample(self) -> Tensor:
        """The next token [1], on the device."""
        return sample(self.logits, self.wanted.temperature, self.source, self.wanted.top_p)

    def takes(self, hidden: Tensor, logits: Tensor, novelty: Tensor | None, told: bool) -> None:
        """Go on after a token that was written together with others."""
        tail, self.logits = self.reader.tail, logits
        self.reader.heard(hidden if told else None)
        if not told:
            tail.count, tail.hidden = tail.count + 1, hidden
        if self.noting and novelty is not None:
            if told:
                tail.pot.note_novelty(novelty[None])
            else:
                tail.novelty.append(novelty)


class Group:
    """Voices whose pots are written together."""

    def __init__(self, voices: Sequence[Voice]) -> None:
        self.voices = list(voices)
        self.model = voices[0].reader.model
        self.pots = [voice.reader.pot for voice in voices]
        self.fixed = all(voice.reader.fixed(voice.brim) for voice in voices)
        if self.fixed:
            self.slots = max(pot.pot_layers[0].capacity for pot in self.pots)
            for voice, pot in zip(self.voices, self.pots, strict=True):
                if pot.pot_layers[0].capacity < self.slots:  # pots that grow get one shape
                    voice.reader.end()
                    pot.reserve(self.slots)
            self.by_address = FixedRows.serves(self.pots[0])
            self.state = self._state()

    def of(self, voices: Sequence[Voice]) -> bool:
        """Say whether these are its voices and it knows their fills."""
        return self.voices == list(voices)

    def _state(self) -> Tensor:
        """See `FixedRows`; padded to a power of two, so that few graphs serve every number of voices."""
        columns = [
            [0, pot.fill + voice.reader.tail.count, pot.position - pot.fill, *FixedRows.addresses(pot)]
            for pot, voice in zip(self.pots, self.voices, strict=True)
        ]
        if self.by_address:
            wanted = 1 << (len(columns) - 1).bit_length()
            padding = [0, self.slots, 0, *columns[0][3:]]
            columns += [padding] * (wanted - len(columns))
        state = torch.tensor(columns).T.contiguous()
        device = self.pots[0].pot_layers[0].keys.device
        return state.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else state

    @torch.no_grad()
    def step(self, tokens: Tensor) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """Write a token [N] each; return each voice's hidden state, next logits and that token's novelty."""
        novelty = None
        if any(voice.noting for voice in self.voices):
            novelty = surprise(_joined(self.voices), tokens)
        hidden, logits = self._fixed(tokens) if self.fixed else self._plain(tokens)
        parts = [slice(row, row + 1) for row in range(len(self.voices))]
        return [(hidden[part], logits[part], None if novelty is None else novelty[part]) for part in parts]

    def _plain(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        with ExitStack() as stack:
            for voice, pot in zip(self.voices, self.pots, strict=True):
                voice.reader.end()
                stack.enter_context(pot.writing(observing=not voice.brim or "last" in pot.needs))
            hidden = self.model.forward(tokens[:, None], Rows(self.pots))
        return hidden, self.model.logits(hidden[:, -1])

    def _fixed(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        self.state[0, : len(tokens)] = tokens
        key = ("decode", self.slots, self.state.shape[1])
        graphs = self._graphs()
        hidden, logits = graphs.run(key, [self.state], self._compute) if graphs else self._compute(self.state)
        self.state[1, : len(tokens)] += 1
        return hidden.clone(), logits.clone()  # a graph's own outputs are overwritten by whoever speaks next

    def _graphs(self) -> Static | None:
        """Where addresses will do, the model's graphs serve any pots; else a lone pot has its own."""
        if self.by_address:
            return _GRAPHS.setdefault(self.model, Static())
        return self.voices[0].reader.graphs if len(self.voices) == 1 else None

    def _compute(self, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.model.forward(state[0, :, None], FixedRows(self.pots, state))
        return hidden, self.model.logits(hidden[:, -1])


_GRAPHS: WeakKeyDictionary[Forward, Static] = WeakKeyDictionary()  # of decoding, for all pots of a model


def uncaptured(model: Forward) -> str:
    """Why decoding with this model is not captured any more; empty where it is, or was not tried."""
    return _GRAPHS[model].reason if model in _GRAPHS else ""


def _joined(voices: Sequence[Voice]) -> Tensor:
    return voices[0].logits if len(voices) == 1 else torch.cat([voice.logits for voice in voices])


def _sampled(voices: Sequence[Voice]) -> Tensor:
    """The next token of every voice [N], on the device."""
    if all(voice.wanted.temperature == 0 for voice in voices):
        return sample(_joined(voices))
    return torch.cat([voice.sample() for voice in voices])


class _Told:
    """Tokens on their way to the host."""

    def __init__(self, tokens: Tensor) -> None:
        self.host, self.arrived = tokens, None
        if tokens.device.type == "cuda":
            self.host = tokens.to("cpu", non_blocking=True)
            self.arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.arrived.record()

    def values(self) -> list[int]:
        if self.arrived is not None:
            self.arrived.synchronize()
        found: list[int] = self.host.tolist()
        return found


class Chorus:
    """Voices that speak together, a token each at every step; they come and go between steps."""

    def __init__(self, voices: Sequence[Voice] = ()) -> None:
        self.voices = list(voices)
        self._said: dict[Voice, tuple[int, int]] = {}  # row and token of the last step: not written yet
        self._tokens = torch.empty(0)
        self._ahead: list[tuple[Tensor, Tensor, Tensor | None]] | None = None
        self._group: Group | None = None

    def add(self, voice: Voice) -> None:
        """Let a voice join from the next step on."""
        self.voices.append(voice)

    def drop(self, voice: Voice) -> None:
        """Let a voice go; its reader knows all it said."""
        if voice in self.voices:
            self.voices.remove(voice)
            self._said.pop(voice, None)
            voice.reader.end()

    def step(self) -> list[tuple[Voice, int | None]]:
        """Write what was said last, and say the next token of every voice; None for one that has ended."""
        self._write()
        if not self.voices:
            return []
        tokens = _sampled(self.voices)
        told = _Told(tokens)
        self._tokens, self._ahead = tokens, None
        if all(
            voice.left > 1 and voice.reader.fixed(voice.brim) and not voice.reader.full(voice.brim)
            for voice in self.voices
        ):
            self._group = self._group if self._group and self._group.of(self.voices) else Group(self.voices)
            self._ahead = self._group.step(tokens)
        found: list[tuple[Voice, int | None]] = []
        for row, (voice, token) in enumerate(zip(list(self.voices), told.values(), strict=True)):
            if token in voice.reader.stops:
                self.drop(voice)
                found.append((voice, None))
                continue
            voice.left -= 1
            voice.reader.say(token)
            self._said[voice] = (row, token)
            found.append((voice, token))
        return found

    def _write(self) -> None:
        """Bring the last step's tokens into the pots; a voice that has said all it may, goes."""
        for voice in [voice for voice in self._said if not voice.left]:
            self.drop(voice)
        going = [(row, voice, token) for voice, (row, token) in self._said.items()]
        self._said = {}
        if self._ahead is not None:
            for row, voice, _ in going:
                voice.takes(*self._ahead[row], told=False)
        elif going:
            self._group = None
            _advance(going, self._tokens)

    def close(self) -> None:
        """Let every voice go."""
        for voice in list(self.voices):
            self.drop(voice)


def speak(voices: Sequence[Voice]) -> Iterator[tuple[int, int]]:
    """Yield (voice, token) until every voice has stopped."""
    chorus = Chorus(voices)
    try:
        while chorus.voices:
            for voice, token in chorus.step():
                if token is not None:
                    yield voice.index, token
    finally:
        chorus.close()


def _advance(going: list[tuple[int, Voice, int]], tokens: Tensor) -> None:
    """One token further without looking ahead: together where that can be, one by one where not."""
    alone: list[tuple[int, Voice, int]] = []
    rest: list[tuple[int, Voice, int]] = []
    for one in going:
        _, voice, _ = one
        (alone if voice.reader.full(voice.brim) else rest).append(one)
    if len(rest) == 1 and not rest[0][1].reader.fixed(rest[0][1].brim):
        alone, rest = alone + rest, []
    for _, voice, token in alone:
        voice.reader.end()
        voice.logits = voice.reader.model.logits(voice.reader.advance(token, voice.brim)[:, -1])
    if rest:
        group = Group([voice for _, voice, _ in rest])
        for (_, voice, _), found in zip(rest, group.step(tokens[[row for row, _, _ in rest]]), strict=True):
            voice.takes(*found, told=not group.fixed)
