"""Rows of plain and packed files, and what becomes of bad ones."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinipot.errors import InputError
from infinipot.eval.tasks.jsonl import BadRow, Row, RowError, find_file, from_rows, read_rows
from infinipot.eval.tasks.task import Example


def example(row: Row) -> Example:
    return Example(row.text("id"), row.text("text"), "?", row.strings("answers"), 1)


def line(**fields: object) -> bytes:
    return (
        json.dumps({"id": "1", "text": "t", "answers": ["a"], **fields}, ensure_ascii=False).encode() + b"\n"
    )


@pytest.mark.parametrize("opened", [Path.open, lzma.open, gzip.open], ids=["plain", "xz", "gz"])
def test_files_may_be_packed_and_lines_end_only_at_newlines(opened: object, tmp_path: Path) -> None:
    suffix = {Path.open: "", lzma.open: ".xz", gzip.open: ".gz"}[opened]
    path = tmp_path / f"task.jsonl{suffix}"
    with opened(path, "wb") as file:  # type: ignore[operator]
        file.write(line(text="one\u2028two\u0085three") + b"\n" + line(id="2").rstrip())
    assert find_file(tmp_path, ["none.jsonl", "task.jsonl"], "how") == path
    first, second = read_rows(path)
    assert isinstance(first, Row)
    assert isinstance(second, Row)
    assert (first.line, first.text("text")) == (1, "one\u2028two\u0085three")
    assert (second.line, second.text("id")) == (3, "2")  # the blank line between is no row


BAD = {
    b'{"id": \n': "not JSON",
    b"[1, 2]\n": "should be a JSON object, not list",
    b'{"id": "\xff"}\n': "not UTF-8",
    b"[" * 100_000 + b"\n": "not JSON",
    line(id=7): "'id' should be a string, not int",
    line(text=None): "'text' should be a string, not NoneType",
    line(answers=[]): "'answers' is empty",
    line(answers="a"): "'answers' should be a list, not str",
    line(answers=["a", 3]): "'answers' should hold strings, not int",
    b'{"id": "1", "text": "t"}\n': "'answers' is missing",
    b'{"id": "1", "text": "\\ud800", "answers": ["a"]}\n': "'text' holds half of a surrogate pair",
}


@pytest.mark.parametrize(("content", "reason"), BAD.items(), ids=range(len(BAD)))
def test_a_bad_row_is_named_and_the_others_go_on(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "task.jsonl"
    path.write_bytes(line(id="before") + content + line(id="after"))
    before, bad, after = from_rows(read_rows(path), example)
    assert isinstance(before, Example)
    assert isinstance(after, Example)
    assert isinstance(bad, BadRow)
    assert (before.id, after.id) == ("before", "after")
    assert (bad.file, bad.line) == (str(path), 2)
    assert bad.reason.startswith(reason)
    assert str(bad) == f"{path}, line 2: {bad.reason}"


def test_a_file_cut_short_ends_with_a_bad_row(tmp_path: Path) -> None:
    noise = [line(text=f"{number:x}" * 50, id=str(number)) for number in range(3000)]
    for packed, suffix in ((lzma.compress, "xz"), (gzip.compress, "gz")):
        path = tmp_path / f"task.jsonl.{suffix}"
        whole = packed(b"".join(noise))
        path.write_bytes(whole[: len(whole) // 2])
        *good, last = from_rows(read_rows(path), example)
        assert all(isinstance(found, Example) for found in good)
        assert isinstance(last, BadRow)
        assert last.line == len(good) + 1
        assert "damaged" in last.reason


def test_repeated_ids_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "task.jsonl"
    path.write_bytes(line() * 3)
    assert [found.id for found in from_rows(read_rows(path), example) if isinstance(found, Example)] == [
        "1",
        "1#2",
        "1#3",
    ]


def test_missing_folders_and_files_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*nowhere: fetch it"):
        find_file(tmp_path / "nowhere", ["a.jsonl"], "fetch it")
    with pytest.raises(InputError, match=r"has no a\.jsonl or b\.jsonl \(nor \.xz, \.gz\): fetch it"):
        find_file(tmp_path, ["a.jsonl", "b.jsonl"], "fetch it")


def test_whole_numbers() -> None:
    assert Row("f", 1, {"n": 3}).integer("n") == 3
    for wrong in (True, -1, 2.0, "3", None):
        with pytest.raises(RowError, match="should be a whole number"):
            Row("f", 1, {"n": wrong}).integer("n")


@given(content=st.binary(max_size=200))
def test_no_bytes_end_a_run(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("rows") / "task.jsonl"
    path.write_bytes(content)
    for found in from_rows(read_rows(path), example):
        assert isinstance(found, (Example, BadRow))
