"""From ids that arrive one by one to text that can be shown: whole characters."""

from collections.abc import Sequence

from infinipot.text.tokenizer import Tokenizer

_UNFINISHED = "\ufffd"
_HOLD = 64  # tokens a Detokenizer keeps back at most


class Detokenizer:
    """Text of ids that arrive one by one; all it returns, joined, is `decode` of all ids.

    A token is decoded after one earlier token, the anchor, because some tokenizers drop the space in front of
    a text's first word; so the cost of a token does not grow with the answer. Held back are an unfinished
    character, and runs of SentencePiece byte tokens (`byte_fallback_ids`, which a tokenizer may declare):
    a later byte can undo earlier ones. Past `_HOLD` tokens a run is given out as it stands.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decode = tokenizer.decode
        self._joint: frozenset[int] = getattr(tokenizer, "byte_fallback_ids", frozenset())
        self._reset()

    def _reset(self) -> None:
        self._anchor: list[int] = []
        self._skip = 0  # characters of the anchor
        self._pending: list[int] = []
        self._given = 0  # characters of the pending ids already returned

    def push(self, token: int) -> str:
        """Take one id; return the text that no later id can change."""
        self._pending.append(token)
        if len(self._pending) >= _HOLD:
            return self._shorten(self._boundary())
        if token in self._joint:
            return ""
        text = self._text(self._pending)
        if text.endswith(_UNFINISHED):
            return self._give(text[:-1])
        new = self._give(text)
        self._set_anchor(token, text)
        return new

    def flush(self) -> str:
        """Return what was held back, and start anew."""
        rest = self._text(self._pending)[self._given :]
        self._reset()
        return rest

    def _text(self, ids: Sequence[int]) -> str:
        return self._decode([*self._anchor, *ids])[self._skip :] if ids else ""

    def _give(self, text: str) -> str:
        new, self._given = text[self._given :], max(self._given, len(text))
        return new

    def _set_anchor(self, token: int, text: str) -> None:
        """Forget the pending ids, whose text is whole, once there is an anchor to go on from."""
        alone = self._decode([token])
        if alone and _UNFINISHED not in alone:
            self._anchor, self._skip = [token], len(alone)
        elif text and not self._anchor:
            self._anchor, self._skip = self._pending, len(text)
        if self._anchor:
            self._pending, self._given = [], 0

    def _boundary(self) -> int:
        """Where the pending ids come apart with the fewest broken characters."""
        ids, count = self._pending, len(self._pending)

        def broken(k: int) -> int:
            return (self._text(ids[:k]) + self._text(ids[k:])).count(_UNFINISHED)

        return min(range(count // 2, count + 1), key=broken)

    def _shorten(self, count: int) -> str:
        text = self._text(self._pending[:count])
        new, self._given = text[self._given :], max(0, self._given - len(text))
        del self._pending[:count]
        return new


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return the text of each token; a character of several tokens is the last one's."""
    text = Detokenizer(tokenizer)
    found = [text.push(token) for token in ids]
    if found:
        found[-1] += text.flush()
    return found


def overlap(text: str, mark: str) -> int:
    """Length of the longest end of a text that may be the beginning of a mark."""
    return next((n for n in range(min(len(mark), len(text)), 0, -1) if text.endswith(mark[:n])), 0)
