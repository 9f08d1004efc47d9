"""What a pot held, cycle by cycle: recorded while it reads, small on disk, read back without a model.

A token that a head has dropped never comes back. So one number says everything about a head and a token: the
cycle that dropped it, four bytes, however many cycles there are; the catalyst's scores of what was kept take
two bytes each. A record is numpy, and loading one imports neither torch nor a model.
"""

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from infinipot.common.atomic_files import reason
from infinipot.errors import InputError, ModelError

if TYPE_CHECKING:
    from torch import Tensor

    from infinipot.core.evidence import Evidence

Numbers = npt.NDArray[np.int32]
Halves = npt.NDArray[np.float16]
Mask = npt.NDArray[np.bool_]

KIND = "infinipot recording 1"
FIRST = 4096  # tokens there is room for at first


@dataclass(frozen=True)
class Record:
    """What was read, and which of it each layer and head held after every cycle.

    Cycles count from 1. A layer is one that is distilled; `layers` are their numbers in the model.
    """

    layers: tuple[int, ...]
    tokens: Numbers  # [C] tokens read before each cycle
    dropped: Numbers  # [L, H, T] the cycle that dropped a token; 0 where none did
    novelty: Halves  # [T] when it was read; zeros where nobody asked for it
    catalyst: tuple[Halves | None, ...]  # for each cycle [L, H, n]: scores of what it kept, in reading order
    ids: Numbers  # [T]
    pieces: tuple[str, ...]  # the text of each token; joined, they are the text
    about: Mapping[str, Any]  # JSON-ready: recipe, model, question, answer

    @property
    def cycles(self) -> int:
        """Distillations."""
        return len(self.tokens)

    def seen(self, cycle: int | None = None) -> int:
        """Tokens read when a cycle came, or all of them."""
        return len(self.ids) if cycle is None else min(int(self.tokens[cycle - 1]), len(self.ids))

    def held(self, cycle: int | None = None) -> Mask:
        """[L, H, T], true for what was held after a cycle, or in the end."""
        if cycle is None:
            return np.asarray(self.dropped == 0)
        held: Mask = (self.dropped == 0) | (self.dropped > cycle)
        held[..., self.seen(cycle) :] = False
        return held

    def save(self, path: Path) -> int:
        """Write one compressed file; return its bytes."""
        most = int(self.dropped.max(initial=0))
        sizes = np.array([len(piece.encode()) for piece in self.pieces], np.uint32)
        header = {"kind": KIND, "layers": self.layers, "about": dict(self.about)}
        texts = {"header": json.dumps(header, ensure_ascii=False), "text": "".join(self.pieces)}
        arrays: dict[str, Any] = {
            name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()
        }
        arrays |= {"sizes": sizes, "ids": self.ids, "tokens": self.tokens, "novelty": self.novelty}
        arrays["dropped"] = self.dropped.astype(np.min_scalar_type(most))
        arrays |= {f"catalyst.{n}": found for n, found in enumerate(self.catalyst) if found is not None}
        np.savez_compressed(path, **arrays)
        return path.stat().st_size

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that `save` wrote."""
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                return cls._unpacked(file)
        except OSError as error:
            raise InputError(f"cannot read {path}: {reason(error)}") from error
        except (EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"{path} is no recording: write one with `infinipot inspect`") from error

    @classmethod
    def _unpacked(cls, file: Any) -> Self:
        header = json.loads(file["header"].tobytes())
        if header["kind"] != KIND:
            raise ValueError(header["kind"])
        ends = np.cumsum(file["sizes"], dtype=np.int64)
        text = file["text"].tobytes()
        starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
        pieces = tuple(text[a:b].decode() for a, b in zip(starts, ends, strict=True))
        tokens = file["tokens"]
        scores = (file[name] if (name := f"catalyst.{n}") in file else None for n in range(len(tokens)))
        dropped, novelty = file["dropped"].astype(np.int32), file["novelty"]
        told = (file["ids"], pieces, header["about"])
        return cls(tuple(header["layers"]), tokens, dropped, novelty, tuple(scores), *told)


class Recording:
    """Gathers a record while a reader reads: give it to `reader.recording`."""

    def __init__(self) -> None:
        self.layers: tuple[int, ...] = ()
        self.tokens: list[int] = []  # before each cycle
        self.catalyst: list[Halves | None] = []
        self._dropped: Numbers = np.zeros((0, 0, 0), np.int32)
        self._novelty: list[Halves] = []
        self._read = 0  # tokens whose novelty is known

    @property
    def nbytes(self) -> int:
        """Bytes that the recording takes now."""
        scores = sum(found.nbytes for found in self.catalyst if found is not None)
        return int(self._dropped.nbytes + scores + sum(part.nbytes for part in self._novelty))

    def cycle(self, evidence: Sequence["Evidence"], slots: Sequence["Tensor"], tokens: int) -> None:
        """Take note of one distillation, before it happens: what is known of each layer, and what stays."""
        self.rest(evidence, tokens)
        self.tokens.append(tokens)
        scores = []
        for row, (known, chosen) in enumerate(zip(evidence, slots, strict=True)):
            stays = chosen[0].cpu().numpy()  # [H, n]
            source = known.source[0].cpu().numpy()  # [H, S]
            goes = np.ones(source.shape, np.bool_)
            np.put_along_axis(goes, stays, False, -1)
            lost = source[goes].reshape(len(source), -1)  # every head drops as many
            np.put_along_axis(self._dropped[row], lost, np.int32(len(self.tokens)), -1)
            if known.catalyst is not None:
                found = known.catalyst[0].float().cpu().numpy()
                scores.append(np.take_along_axis(found, stays, -1).astype(np.float16))
        self.catalyst.append(np.stack(scores) if scores else None)

    def rest(self, evidence: Sequence["Evidence"], tokens: int) -> None:
        """Take note of what was read since the last cycle; it is in the last slots of every head."""
        if not self.layers:
            self._begin(evidence)
        if tokens > self._dropped.shape[2]:
            more = max(tokens, 2 * self._dropped.shape[2]) - self._dropped.shape[2]
            self._dropped = np.pad(self._dropped, ((0, 0), (0, 0), (0, more)))
        new = tokens - self._read
        if new:
            self._novelty.append(evidence[0].novelty[0, 0, -new:].float().cpu().numpy().astype(np.float16))
        self._read = tokens

    def _begin(self, evidence: Sequence["Evidence"]) -> None:
        heads = {known.source.shape[1] for known in evidence}
        if len(heads) > 1:
            raise ModelError("this model cannot be recorded: its layers differ in their number of heads")
        self.layers = tuple(known.layer for known in evidence)
        self._dropped = np.zeros((len(evidence), heads.pop(), FIRST), np.int32)

    def record(self, ids: Sequence[int], pieces: Sequence[str], about: Mapping[str, Any]) -> Record:
        """Return what was recorded of the first tokens written, whose ids and texts these are."""
        count = len(ids)
        if len(pieces) != count or self._read < count:
            raise InputError(f"{self._read} tokens were recorded, not {count}: record from the first on")
        dropped, novelty = self._dropped[:, :, :count].copy(), np.concatenate(self._novelty)[:count]
        told = (np.array(ids, np.int32), tuple(pieces), about)
        tokens, catalyst = np.array(self.tokens, np.int32), tuple(self.catalyst)
        return Record(self.layers, tokens, dropped, novelty, catalyst, *told)
