"""Words of any language for a full-text index: as they are, or pairs of letters where no space parts them."""

import re

# Scripts that put no spaces between words: Thai, Lao, Myanmar, Khmer, Japanese, Chinese (and its extensions).
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003134f]+"
)
_LEADS = bytes((0xE0, 0xE1, *range(0xE3, 0xF5)))  # one of these begins each such letter in UTF-8
_WORD = re.compile(r"\w+")


def indexed(text: str) -> str:
    """Return a text as the index takes it: a run of letters without spaces becomes its pairs."""
    spelt = text.encode("utf-8", "surrogatepass")
    without = len(spelt.translate(None, _LEADS)) == len(spelt)  # far quicker than to look for letters
    return text if without else _UNSPACED.sub(_pairs, text)


def terms(text: str) -> list[str]:
    """Return the words of a text, each once, as the index has them."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(indexed(text))))


def _pairs(match: re.Match[str]) -> str:
    run = match.group()
    pairs = [run[at : at + 2] for at in range(len(run) - 1)] or [run]
    return f" {' '.join(pairs)} "
