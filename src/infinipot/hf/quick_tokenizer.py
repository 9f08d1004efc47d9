"""A folder's tokenizer in one file that the tokenizers library reads by itself.

Most tokenizer classes of transformers read their file into Python objects, build a second tokenizer of them
and keep both: with a vocabulary of 150,000 that is a second and 60 MB at every start. What such a class has
built is saved once, and from then on read as it is. The class itself is the obvious twin, and decides: a copy
that is not the same in every respect is not used.
"""

import inspect
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from infinipot.common.atomic_files import aside
from infinipot.errors import StoreError

FILE, SETTINGS = "tokenizer.json", "settings.json"
PLAIN = ("chat_template", "model_max_length", "padding_side", "truncation_side", "model_input_names")
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def tokenizer_in(folder: Path) -> Any:
    """Return the tokenizer of a folder; its quick copy is made where there is none yet."""
    from transformers import AutoTokenizer, __version__

    copy = folder / f"quick-{__version__}"  # another version may build another tokenizer
    if (copy / SETTINGS).is_file() and (settings := json.loads((copy / SETTINGS).read_text("utf-8"))):
        return _made(copy / FILE, settings)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if not (copy / SETTINGS).is_file():
        with suppress(OSError, StoreError):  # a folder that cannot be written: no copy, and no harm
            _save(tokenizer, copy)
    return tokenizer


def same(one: Any, other: Any) -> bool:
    """Say whether two tokenizers split texts alike and call the same tokens special."""
    return all(
        look(one) == look(other)
        for look in (
            _settings,
            lambda found: found.backend_tokenizer.to_str(),
            lambda found: found.all_special_ids,
            lambda found: {number: str(token) for number, token in found.added_tokens_decoder.items()},
        )
    )


def _save(tokenizer: Any, copy: Path) -> None:
    """Save a copy, or empty settings where a copy would not be the same."""
    copy.mkdir(exist_ok=True)
    settings: dict[str, Any] = {}
    if not _overridden(type(tokenizer)):
        with aside(copy / FILE) as half:
            half.write_text(tokenizer.backend_tokenizer.to_str(), "utf-8")
        found = _settings(tokenizer)
        settings = found if same(_made(copy / FILE, found), tokenizer) else {}
    with aside(copy / SETTINGS) as half:
        half.write_text(json.dumps(settings), "utf-8")


def _made(file: Path, settings: dict[str, Any]) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_file=str(file), **settings)


def _settings(tokenizer: Any) -> dict[str, Any]:
    return {name: getattr(tokenizer, name) for name in (*PLAIN, *SPECIAL)}


def _overridden(kind: type) -> set[str]:
    """The functions in which a class differs from the plain one, that by which it is made excepted."""
    from transformers import PreTrainedTokenizerFast

    plain = dict(inspect.getmembers(PreTrainedTokenizerFast, inspect.isfunction))
    own = dict(inspect.getmembers(kind, inspect.isfunction))
    return {name for name, function in own.items() if function is not plain.get(name)} - {"__init__"}
