"""Which words a pot still holds: the ids of tokens that some head kept, in bounded memory.

A pot knows where in the text each slot came from, not what stood there. `HeldWords` remembers the ids, and
forgets those that no head holds any more: never many more than twice as many as there are slots, and looked
through only when they have doubled. On an accelerator the look is begun behind one forward and its result is
taken behind the next, so that the device never waits for it.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from infinipot.core.cuda.capturing import to_device
from infinipot.core.pot import Pot
from infinipot.core.state import State, damaged
from infinipot.text.detokenize import pieces
from infinipot.text.tokenizer import Tokenizer

Column = tuple[Tensor, Tensor]  # places and novelty [B, Hkv, S] of a layer's slots
Token = tuple[int, str, float, float]  # place, text, share, novelty
LEAST = 65_536  # ids that are kept without a look


@dataclass(frozen=True)
class Word:
    """A word of the text that is still held."""

    text: str
    start: int  # its first token's place in the text
    end: int  # the place after its last token
    share: float  # of all layers and heads, how many hold it: the mean over its tokens
    novelty: float  # of its most novel token


class HeldWords:
    """Ids of the tokens in a pot, by their place in the text; `total` tokens were ever written."""

    def __init__(self, total: int = 0, places: Iterable[int] = (), ids: Iterable[int] = ()) -> None:
        self.total, self._places, self.ids = total, array("q", places), array("q", ids)
        self._limit = max(LEAST, 2 * len(self.ids))
        # Which of the first ids stay, and when that is known.
        self._look: tuple[Tensor, torch.cuda.Event | None] | None = None

    def add(self, tokens: Iterable[int], pot: Pot) -> None:
        """Take note of tokens written into the pot."""
        before = len(self.ids)
        self.ids.extend(tokens)
        more = len(self.ids) - before
        self._places.extend(range(self.total, self.total + more))
        self.total += more
        if self._look is not None:
            self._finish_look()
        elif len(self.ids) > self._limit:
            self._begin_look(pot)
            if self._look is not None and self._look[1] is None:
                self._finish_look()

    def _begin_look(self, pot: Pot) -> None:
        """Find out which ids stay, without waiting for the device."""
        stays = _still_held(torch.tensor(self._places), columns(pot))
        when = None
        if stays.device.type == "cuda":
            stays, when = stays.to("cpu", non_blocking=True), torch.cuda.Event()  # type: ignore[no-untyped-call]
            when.record()
        self._look = stays, when

    def _finish_look(self) -> None:
        """Drop what the last look did not find; what came after the look stays."""
        if self._look is None:
            return
        (stays, when), self._look = self._look, None
        if when is not None:
            when.synchronize()
        count, kept = len(stays), stays.cpu()
        for name in ("_places", "ids"):
            before = getattr(self, name)
            found = torch.frombuffer(before, dtype=torch.long)[:count][kept].tolist() if count else []
            setattr(self, name, array("q", found) + before[count:])
        self._limit = max(LEAST, 2 * len(self.ids))

    def clear(self) -> None:
        """Forget everything."""
        self.total, self._limit, self._places, self.ids = 0, LEAST, array("q"), array("q")
        self._look = None

    def copy(self) -> "HeldWords":
        """Return an independent copy."""
        return HeldWords(self.total, self._places, self.ids)

    def state(self, pot: Pot) -> State:
        """Return what of it the pot still holds."""
        self._finish_look()
        self._begin_look(pot)
        self._finish_look()
        tensors = {"places": torch.tensor(self._places), "ids": torch.tensor(self.ids)}
        return State(tensors, {"total": self.total})

    def restore(self, state: State) -> None:
        """Take over a state."""
        places, ids = state.tensors.get("places"), state.tensors.get("ids")
        total = state.number("total", 0, 2**62)
        if places is None or ids is None or places.shape != ids.shape or not _sound(places, ids, total):
            raise damaged("trace is damaged")
        self.total, self._places, self.ids = total, array("q", places.tolist()), array("q", ids.tolist())
        self._limit, self._look = max(LEAST, 2 * len(self.ids)), None

    def words(self, columns: Iterable[Column], tokenizer: Tokenizer, first: int = 0) -> list[Word]:
        """Return the words that are held, in reading order; tokens before `first` are the prompt's."""
        if not self.ids:
            return []
        places = torch.tensor(self._places)
        shares, novelty = _held(columns, places, self.total)
        seen = (shares > 0) & (places >= first)
        facts = (places, torch.tensor(self.ids), shares, novelty)
        rows = zip(*(fact[seen].tolist() for fact in facts), strict=True)
        return [_word(tokens, first) for tokens in _words(rows, tokenizer)]


def words_of(state: State, tokenizer: Tokenizer, first: int = 0) -> list[Word]:
    """Return the words that a reader's state holds; no model is needed."""
    held, pot = HeldWords(), state.part("pot")
    held.restore(state.part("trace"))
    parts = [pot.part(name) for name in sorted({key.partition(".")[0] for key in pot.tensors})]
    columns = [_column(part) for part in parts if "source" in part.tensors]
    return held.words(columns, tokenizer, first)


def _column(part: State) -> Column:
    """A layer's places and novelty, if they are what a pot holds: a state may come from a stranger's file."""
    source, novelty = part.tensors["source"], part.tensors.get("novelty")
    known = novelty is not None and novelty.shape == source.shape and novelty.is_floating_point()
    if novelty is None or not known or source.dim() != 3 or source.dtype != torch.long:
        raise damaged("slots are damaged")
    return source, novelty


def _sound(places: Tensor, ids: Tensor, total: int) -> bool:
    """Say whether places are in reading order and ids can be ids."""
    if places.dim() == 1 and not len(places):
        return True
    if places.dim() != 1 or places.dtype != torch.long or ids.dtype != torch.long:
        return False
    ordered = bool((places.diff() > 0).all()) and 0 <= int(places[0]) <= int(places[-1]) < total
    return ordered and 0 <= int(ids.min()) <= int(ids.max()) < 2**31


def columns(pot: Pot) -> list[Column]:
    """Where the slots of each layer came from, and how novel they were."""
    return [(layer.source[..., : layer.fill], layer.novelty[..., : layer.fill]) for layer in pot.pot_layers]


def _still_held(places: Tensor, columns: Iterable[Column]) -> Tensor:
    """Which of these places [N], in order, some head holds: [N], on the first layer's device."""
    found, count = torch.empty(0, dtype=torch.bool), len(places)
    for source, _ in columns:
        if not found.numel():
            found = torch.zeros(count + 1, dtype=torch.bool, device=source.device)
            places = to_device(places, source.device)
        held = source.to(found.device).flatten().contiguous()
        at = torch.searchsorted(places, held).clamp(max=max(0, count - 1))
        known = places[at] == held if count else torch.zeros_like(held, dtype=torch.bool)
        found.index_fill_(0, torch.where(known, at, count), True)  # the last one is for what is not known
    return found[:count]


def _held(columns: Iterable[Column], places: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """The share of layers and heads that hold each of these places [N], in order, and its novelty where held.

    Memory follows what is held, not the length of the text.
    """
    counts, novelty, rows = torch.zeros(len(places)), torch.zeros(len(places)), 0
    for source, novel in columns:
        rows += source.shape[0] * source.shape[1]
        held = source.cpu().flatten().contiguous()
        if held.numel() and int(held.max()) >= total:
            raise damaged("trace is of another text")
        at = torch.searchsorted(places, held).clamp(max=len(places) - 1)
        known = places[at] == held
        counts += torch.bincount(at[known], minlength=len(places))
        novelty[at[known]] = novel.cpu().flatten()[known].float()
    return counts / max(1, rows), novelty


def _words(rows: Iterable[tuple[int, int, float, float]], tokenizer: Tokenizer) -> Iterator[list[Token]]:
    """Tokens, a word at a time: it ends before a space, and where the next token of the text is missing."""
    word: list[Token] = []
    for run in _runs(rows):
        texts = pieces(tokenizer, [row[1] for row in run])
        for (place, _, share, novelty), piece in zip(run, texts, strict=True):
            if word and piece[:1].isspace():
                yield word
                word = []
            word.append((place, piece, share, novelty))
        yield word
        word = []


def _runs(rows: Iterable[tuple[int, int, float, float]]) -> Iterator[list[tuple[int, int, float, float]]]:
    """Rows whose places follow each other."""
    every = list(rows)
    cuts = [0, *(k for k, (a, b) in enumerate(pairwise(every), 1) if b[0] != a[0] + 1), len(every)]
    return (every[a:b] for a, b in pairwise(cuts) if a < b)


def _word(tokens: list[Token], first: int) -> Word:
    share = sum(token[2] for token in tokens) / len(tokens)
    text, novelty = "".join(token[1] for token in tokens), max(token[3] for token in tokens)
    return Word(text, tokens[0][0] - first, tokens[-1][0] + 1 - first, round(share, 4), round(novelty, 2))
