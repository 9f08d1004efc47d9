"""The server recalls: pots with their archives, conversations with their own turns, tenants apart."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from infinipot.engine import Engine
from infinipot.recall.passages import Passage
from infinipot.recipes.recipe import Recipe
from infinipot.server.http.app import create_app
from infinipot.server.scheduler.prompts import conversation
from infinipot.server.scheduler.requests import Message
from infinipot.server.scheduler.scheduler import Scheduler
from infinipot.server.settings import Keys, Settings
from infinipot.store import open_store
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

from .conftest import KEY, OTHER_KEY, Client, data_of

CAPACITY, RECALL = 2048, 900
QUESTION = "Which animal did Ottilie keep?"


class Endless(ByteTokenizer):
    """Never stops, so that every answer has its whole length."""

    stop_ids = frozenset()


def book(animal: str) -> str:
    """A text of many paragraphs, one of which has the fact."""
    told = [f"Chapter {number}. " + "Rain fell on the old harbour. " * 24 for number in range(12)]
    told[3] = f"Ottilie kept a {animal} in the attic. " + "Nobody minded much. " * 33
    return "\n\n".join(told)


class Server:
    """A server with a toy model, and clients of its tenants."""

    def __init__(self, scheduler: Scheduler, settings: Settings) -> None:
        self.scheduler, self.store = scheduler, scheduler.store
        self._app = create_app(settings, scheduler)

    def client(self, key: str = "") -> Client:
        return Client(self._app, **({"Authorization": f"Bearer {key}"} if key else {}))

    def read(self, text: str, key: str = "", name: str = "book", rest: str = "") -> Any:
        got = self.client(key)("POST", f"/v1/pots/{name}{rest}", content=text.encode())
        assert got.status_code == 201, got.text
        return got.json()

    def ask(self, *messages: str, key: str = "", **more: Any) -> dict[str, Any]:
        roles = ("user", "assistant")
        told = [{"role": roles[n % 2], "content": text} for n, text in enumerate(messages or [QUESTION])]
        got = self.client(key).chat(messages=told, **{"max_tokens": 4, **more})
        assert got.status_code == 200, got.text
        return got.json() if not more.get("stream") else {"stream": data_of(got.text)}

    def archives(self, folder: Path) -> list[Path]:
        return sorted(folder.rglob("*.archive"))


@contextmanager
def serving(folder: Path, recall: int | None = RECALL, **more: Any) -> Iterator[Server]:
    (folder / "spool").mkdir(exist_ok=True)
    told = {"slots": 1, "conversations": 1, "spool": folder / "spool", **more}
    settings = Settings(model="toy", capacity=CAPACITY, recall=recall, **told)
    engine = Engine("toy", "chat", ToyModel(), Endless(), "float32", "0" * 64)  # type: ignore[arg-type]
    recipe = Recipe.named(capacity=CAPACITY, recall=settings.recall, format="chat")
    scheduler = Scheduler(engine, recipe, open_store(str(folder / "pots")), settings)
    scheduler.start()
    try:
        yield Server(scheduler, settings)
    finally:
        scheduler.stop(5)


def test_an_answer_about_a_pot_comes_with_its_passages(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.read(book("raven"), rest="?title=Tales%20of%1B%5B1mrain")
        (passage,) = server.ask(pot="book")["passages"]
        assert passage["source"] == "Tales of [1mrain"
        assert passage["quote"].startswith("Ottilie kept a raven in the attic")
        assert passage["text"] == book("raven")[passage["start"] : passage["end"]]
        assert (passage["turn"], passage["place"][:16]) == (None, "Tales of [1mrain")
        stream = server.ask(pot="book", stream=True)["stream"]
        *before, last = (json.loads(data) for data in stream[:-1])
        assert last["passages"] == [passage]
        assert last["choices"][0]["finish_reason"] == "length"
        assert not any("passages" in chunk for chunk in before)
        assert "passages" not in server.ask("Zyx qwv?", pot="book")


def test_passages_are_read_and_counted(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.read(book("raven"))
        asked = server.ask(pot="book", keep=False)
        assert asked["usage"]["prompt_tokens"] > len(asked["passages"][0]["text"])
        follow = server.ask(QUESTION, "A", "And what did Ottilie's animal eat?", pot="book")
        assert "raven" in follow["passages"][0]["text"]


def test_an_archive_goes_with_its_pot(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.read(book("raven"))
        server.read("Ottilie also fed a badger. " * 4, rest="/append?title=More")
        assert len(server.archives(tmp_path)) == 1
        found = server.ask("What about the badger and the raven?", pot="book")["passages"]
        assert {passage["source"] for passage in found} == {"book", "More"}
        server.client()("DELETE", "/v1/pots/book")
        assert server.archives(tmp_path) == []


@pytest.mark.parametrize("how", ["damaged", "missing", "of another text"])
def test_without_its_archive_a_pot_still_answers(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path) as server, caplog.at_level(logging.WARNING, "infinipot.server"):
        server.read(book("raven"))
        (kept,) = server.archives(tmp_path)
        if how == "missing":
            kept.unlink()
        elif how == "damaged":
            kept.write_bytes(kept.read_bytes()[:5000] + b"?" * 3000)
        else:
            server.read(book("toad"), name="other")
            (other,) = (path for path in server.archives(tmp_path) if path != kept)
            kept.write_bytes(other.read_bytes())
        answer = server.ask(pot="book")
        assert answer["usage"]["completion_tokens"] == 4
        assert "passages" not in answer
        assert "nothing is recalled" in caplog.text
        server.read("Ottilie also fed a badger. " * 4, rest="/append")
        assert "passages" not in server.ask("What about the badger?", pot="book")
        assert server.client()("GET", "/v1/pots/book/file").status_code == 200
        # The slot that had no archive has one again for the next text.
        server.read(book("stork"), name="next")
        assert "stork" in server.ask(pot="next")["passages"][0]["text"]


def test_an_index_that_cannot_be_searched_costs_the_passages_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    from infinipot.recall.archive import Archive

    def broken(*_: object) -> int:
        raise sqlite3.DatabaseError("database disk image is malformed")

    with serving(tmp_path) as server:
        server.read(book("raven"))
        monkeypatch.setattr(Archive, "count", broken)
        answer = server.ask(pot="book")
        assert answer["usage"]["completion_tokens"] == 4
        assert "passages" not in answer


def test_tenants_recall_their_own(tmp_path: Path) -> None:
    with serving(tmp_path, keys=Keys.of([KEY, OTHER_KEY])) as server:
        server.read(book("raven"), KEY)
        server.read(book("toad"), OTHER_KEY)
        for key, own, other in ((KEY, "raven", "toad"), (OTHER_KEY, "toad", "raven"), (KEY, "raven", "toad")):
            found = json.dumps(server.ask(pot="book", key=key)["passages"])
            assert own in found
            assert other not in found
        # A conversation of one tenant is in the slots; the same words of another tenant find nothing there.
        server.ask(f"{book('heron')}\n\nGo on.", key=KEY)
        said = server.ask(f"{'Nothing happens here. ' * 300}\n\n{QUESTION}", key=OTHER_KEY)
        assert "heron" not in json.dumps(said.get("passages", []))


def test_a_long_conversation_recalls_its_first_turn(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        talk = ["Remember that Ottilie kept a raven in the attic. Say yes."]
        for number in range(5):
            answer = server.ask(*talk)
            talk += [answer["choices"][0]["message"]["content"], f"{number}. " + "It rains here. " * 60]
        known = server.ask(*talk[:-1], QUESTION)
        assert known["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        again = server.ask(*talk[:-2], "Other answer", QUESTION, keep=False)  # not known: all is read again
        for answer in (known, again):
            passage = answer["passages"][0]
            assert "kept a raven" in passage["text"]
            assert (passage["turn"], passage["source"], passage["place"]) == (1, "user", "turn 1, user")


def test_looking_for_passages_makes_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as server:
        server.read(book("raven"))
        monkeypatch.setattr("infinipot.reading.recalled.said", lambda *_: pytest.fail("others wait"))
        assert server.ask("Zyx qwv animal?", pot="book")["usage"]["completion_tokens"] == 4


def test_a_long_message_is_searched_for_its_own_question(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        (passage, *_) = server.ask(f"{book('raven')}\n\n{QUESTION}")["passages"]
        assert "raven" in passage["text"]
        assert QUESTION not in passage["text"]


@pytest.mark.parametrize("long", [False, True])
def test_passages_stand_between_the_message_and_its_question(long: bool) -> None:
    tokenizer, found = Endless(), [Passage(1, "a book", None, 0, 9, 0, " Found. \n")]
    before = "Rain. " * 400 + "\n\n" if long else ""
    prompt = conversation([Message("user", before + "Who?")], tokenizer, "chat", 0, False, CAPACITY)
    plain, after = tokenizer.decode(prompt.tail), tokenizer.decode(prompt.after)
    assert prompt.recalling(tokenizer, "Who?", []) is prompt
    text = tokenizer.decode(prompt.recalling(tokenizer, "Who?", found).tail)
    again = "\n\nPassages of the text that may hold the answer:\n\nFound.\n\nQuestion: Who?"
    first = plain if long else plain.replace("Who?", "Question: Who?")
    assert text == first.removesuffix(after) + again + after


def test_recall_0_recalls_nothing_and_a_text_that_fits_needs_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, recall=0) as server:
        server.read(book("raven"))
        assert "passages" not in server.ask(pot="book")
    with serving(tmp_path) as server:  # the archive was kept all the same
        assert server.ask(pot="book")["passages"]
        server.read("Ottilie kept a raven.", name="short")
        assert "passages" not in server.ask(pot="short")


def test_a_slot_s_archive_has_a_bound_on_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(tmp_path, max_archive=2**16) as server:
        server.read(" ".join(f"Word {number:x} fills a disk." for number in range(2000)))
        assert "nothing of that pot will be recalled" in caplog.text
        assert "passages" not in server.ask("What fills a disk?", pot="book")


@pytest.mark.parametrize("how", ["appended to", "asked about"])
def test_the_bound_holds_for_a_kept_pot(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    many = " ".join(f"Word {number:x} fills a disk." for number in range(2000))
    with serving(tmp_path, max_archive=2**16) as server:
        server.read(book("raven"))
        assert server.ask(pot="book", keep=False)["passages"]
        if how == "appended to":
            server.read(many, rest="/append")
            assert "nothing of that pot will be recalled" in caplog.text
            assert server.archives(tmp_path) == []
        else:
            server.ask(f"{many}\n\nWhat fills a disk?", pot="book")
            (slot,) = (slot for slot in server.scheduler.slots.all if slot.conversation)
            assert slot.reader.archive is not None
            assert "full" in slot.reader.archive.problem


def test_an_archive_larger_than_the_bound_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path) as server:
        server.read(book("raven") * 20)
    with serving(tmp_path, max_archive=2**16) as server:
        assert "passages" not in server.ask(pot="book")
        assert "raise `max_archive`: nothing is recalled" in caplog.text
