"""Names: everything that could leave a store is refused, by allowing little."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinipot.errors import InputError
from infinipot.store.base import check
from toy_pots import BAD_NAMES

GOOD = ["a", "7", "book", "Moby-Dick_1851.v2", "x" * 64, "console", "com10", "a.b-c_d", "nullable"]


@pytest.mark.parametrize("name", GOOD)
def test_plain_names_are_taken(name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize("name", [*BAD_NAMES, None, 7, b"book"], ids=ascii)
def test_anything_else_is_refused_in_one_line(name: object) -> None:
    with pytest.raises(InputError) as caught:
        check(name)  # type: ignore[arg-type]
    said = str(caught.value)
    assert said.isascii()
    assert said.isprintable()
    assert len(said) < 300


@given(st.text(max_size=80))
def test_what_is_taken_is_one_plain_file_name(name: str) -> None:
    try:
        check(name)
    except InputError:
        return
    assert name.isascii()
    assert not set(name) & set("/\\:%\0 ~")
    assert name not in (".", "..")
