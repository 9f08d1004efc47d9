"""Archives: everything that passed can be found again, forks go on alone, files are checked."""

import sqlite3
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from infinipot.errors import StoreError
from infinipot.recall.archive import Archive
from infinipot.recall.database import Database
from infinipot.recall.words import terms

PARAGRAPH = "The harbour lay still and the boats did not move at all that morning.\n\n"


def filled(*texts: str) -> Archive:
    archive = Archive()
    for number, text in enumerate(texts):
        archive.add(text, f"{number}.txt")
    return archive


def found(archive: Archive, question: str) -> list[str]:
    return [passage.text for passage in archive.passages(archive.matching(terms(question), 5))]


def test_what_passed_is_found_with_its_place() -> None:
    fact = "Ottilie drinks no milk.\n\n"
    text = PARAGRAPH * 40 + fact + PARAGRAPH * 40
    archive = filled("another text", text)
    (passage,) = archive.passages(archive.matching(["milk"], 5))
    assert fact in passage.text
    assert passage.source == "1.txt"
    assert text[passage.start : passage.end] == passage.text
    assert "".join(archive.texts()) == "another text" + text


def test_pieces_pass_unchanged_and_a_named_piece_begins_a_source() -> None:
    class Piece(str):
        source = "second.txt"

    archive = Archive()
    assert list(archive.taking(["one ", "two ", Piece("three")], "first.txt")) == ["one ", "two ", "three"]
    assert [(p.source, p.start, p.text) for p in archive.passages([1, 2])] == [
        ("first.txt", 0, "one two "),
        ("second.txt", 0, "three"),
    ]


def test_a_long_piece_is_taken_down_slice_by_slice_so_that_reading_begins_at_once() -> None:
    text, archive = "".join(f"Sentence {number}. " for number in range(20_000)), Archive()
    reading: Iterator[str] = archive.taking([text], "one.txt")
    first = next(reading)
    assert len(first) < len(text) / 3
    assert archive.last * 400 < len(text) / 2  # no more than that slice was taken down
    assert first + "".join(reading) == text
    assert "".join(archive.texts()) == text
    assert {passage.source for passage in archive.passages([1, archive.last])} == {"one.txt"}


def test_a_reading_that_ends_early_leaves_what_had_passed() -> None:
    archive = Archive()
    reading: Iterator[str] = archive.taking(["one ", "two "])
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert "".join(archive.texts()) == "one "


def test_passages_know_about_which_token_they_begin_at() -> None:
    archive = filled("x" * 500, "y" * 1500)
    archive.note_tokens(100, 400)
    places = [(passage.source, passage.token) for passage in archive.passages(range(1, archive.last + 1))]
    assert places == [("0.txt", 100), ("1.txt", 200), ("1.txt", 320), ("1.txt", 440)]
    archive.add("z" * 10)
    archive.note_tokens(500, 7)
    assert [passage.token for passage in archive.passages([1, archive.last])] == [100, 500]


@pytest.mark.parametrize("first", ["main", "fork"])
def test_forks_share_a_past_and_go_on_alone(first: str) -> None:
    main = filled(PARAGRAPH * 50)
    fork = main.fork()
    both = {"main": main, "fork": fork}
    second = "fork" if first == "main" else "main"
    both[first].add(f"Only the {first} knows zebras.")
    assert not found(both[second], "zebras")  # before it has written anything itself
    both[second].add(f"Only the {second} knows giraffes.")
    assert found(both[first], "zebras")
    assert not found(both[first], "giraffes")
    assert found(both[second], "giraffes")
    assert not found(both[second], "zebras")
    assert main.last == fork.last
    assert main.digest != fork.digest


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Die Möwen schrien über dem Hafen.", "möwen"),
        ("松尾芭蕉は江戸時代の俳人である。", "俳人は誰ですか"),
        ("แมวนอนอยู่บนหลังคา", "แมวอยู่ที่ไหน"),
        ("Она живёт в Петербурге.", "петербурге"),
        ('He said "quit" AND left* NEAR the (door).', 'Who said "quit" AND NEAR*?'),
    ],
)
def test_any_language_and_any_sign(text: str, question: str) -> None:
    archive = filled(PARAGRAPH * 30, text)
    assert found(archive, question)[0] == text


def test_a_file_gives_the_same_archive_back_and_can_be_read_on(tmp_path: Path) -> None:
    archive = filled(PARAGRAPH * 50, "A zebra.")
    archive.fork().add("Not mine.")
    archive.save(tmp_path / "a")
    for stranger in (False, True):
        loaded = Archive.load(tmp_path / "a", archive.digest, stranger=stranger)
        assert (loaded.last, loaded.digest) == (archive.last, archive.digest)
        assert found(loaded, "zebra") == ["A zebra."]
        loaded.add("A giraffe.")
        assert found(loaded, "giraffe") == ["A giraffe."]
    assert Archive.load(tmp_path / "a", archive.digest).last == archive.last  # the file was not touched


def changed(path: Path, *commands: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for command in commands:
            connection.execute(command)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("UPDATE passages SET text = 'A lie.' WHERE id = 1", "another text, or was changed"),
        ("DELETE FROM passages WHERE id = 1", "do not follow"),
        ("DELETE FROM passages WHERE id > 1", "another text"),
        ("CREATE TRIGGER t AFTER INSERT ON passages BEGIN DELETE FROM sources; END", "unknown make"),
        ("CREATE TRIGGER words_t AFTER INSERT ON passages BEGIN DELETE FROM sources; END", "unknown make"),
        ("CREATE TRIGGER words_data AFTER UPDATE ON sources BEGIN DELETE FROM passages; END", "unknown make"),
        ("CREATE VIEW words_v AS SELECT * FROM passages", "unknown make"),
        ("CREATE TABLE words_content (id INTEGER PRIMARY KEY, c0)", "unknown make"),
        ("CREATE INDEX words_i ON passages (text)", "unknown make"),
        ("ALTER TABLE words_config ADD COLUMN more AS (abs(k))", "unknown make"),
        ("DROP TABLE words", "unknown make"),
        ("PRAGMA application_id = 1", "is no archive"),
        ("PRAGMA user_version = 99", "newer than"),
    ],
)
def test_a_changed_file_is_refused(command: str, reason: str, tmp_path: Path) -> None:
    archive = filled(PARAGRAPH * 50)
    archive.save(tmp_path / "a")
    changed(tmp_path / "a", command)
    for stranger in (False, True):
        with pytest.raises(StoreError, match=reason):
            Archive.load(tmp_path / "a", archive.digest, stranger=stranger)


def test_what_a_schema_says_is_not_trusted_where_it_is_read() -> None:
    assert Database().run("PRAGMA trusted_schema") == [(0,)]


def test_damage_another_text_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    archive = filled(PARAGRAPH * 500)
    archive.save(tmp_path / "a")
    with pytest.raises(StoreError, match="another text"):
        Archive.load(tmp_path / "a", filled("other").digest)
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    (tmp_path / "noise").write_bytes(b"x" * 5000)
    for name in ("cut", "noise", "missing"):
        with pytest.raises(StoreError, match="damaged"):
            Archive.load(tmp_path / name, archive.digest)


def test_a_disk_that_refuses_ends_the_archive_not_the_reading() -> None:
    archive = Archive(most_bytes=100_000)
    archive.add("before " * 100)
    assert list(archive.taking(["word " * 10_000])) == ["word " * 10_000]
    assert "full" in archive.problem
    assert archive.digest == ""
    archive.add("more")
    assert not found(archive, "more")


@pytest.mark.parametrize("page", [4096, 65_536])
def test_the_bound_on_disk_holds_for_an_archive_of_a_file_and_its_forks(page: int, tmp_path: Path) -> None:
    archive, most = filled(PARAGRAPH * 50), 500_000
    archive.save(tmp_path / "a")
    changed(tmp_path / "a", f"PRAGMA page_size = {page}", "VACUUM")
    loaded = Archive.load(tmp_path / "a", archive.digest, most_bytes=most)
    fork = loaded.fork()
    for one in (loaded, fork):  # the second takes a database of its own
        one.add("One more.")
    for one in (loaded, fork):
        for number in range(20):
            one.add(" ".join(f"word{number}x{count}" for count in range(2000)))
            if one.problem:
                break
        assert "full" in one.problem
        one.save(tmp_path / "b")
        assert (tmp_path / "b").stat().st_size <= most
        (tmp_path / "b").unlink()


def test_a_fork_for_which_there_is_no_room_ends_alone(tmp_path: Path) -> None:
    archive = Archive(most_bytes=200_000)
    archive.add("before " * 100)
    fork = archive.fork()
    while not archive.problem:
        archive.add(" ".join(f"word{archive.last}x{count}" for count in range(300)))
    fork.add("after")
    assert "full" in fork.problem
    with pytest.raises(StoreError, match="cannot write the archive"):
        fork.save(tmp_path / "a")
    assert found(archive, "before")


def test_a_file_larger_than_the_bound_is_refused(tmp_path: Path) -> None:
    archive = filled(PARAGRAPH * 500)
    archive.save(tmp_path / "a")
    size = (tmp_path / "a").stat().st_size
    assert Archive.load(tmp_path / "a", archive.digest, most_bytes=size).digest == archive.digest
    with pytest.raises(StoreError, match=f"over {size - 1:,} bytes: raise `max_archive`"):
        Archive.load(tmp_path / "a", archive.digest, most_bytes=size - 1)


def test_memory_does_not_follow_the_length() -> None:
    """SQLite's own pages are outside of this count; their cache has a fixed size."""
    archive, peaks = Archive(), []
    tracemalloc.start()
    for _ in range(2):
        tracemalloc.reset_peak()
        for _ in archive.taking(PARAGRAPH * 20 for _ in range(200)):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 100_000
