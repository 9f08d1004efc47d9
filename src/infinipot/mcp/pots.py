"""What the tools do, one call at a time: a model, a store of pots, and the files that may be read."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infinipot.errors import InfiniPotError, InputError, StoreError
from infinipot.recall.search import search
from infinipot.store import Card, PotStore
from infinipot.store.base import check
from infinipot.text.documents import Document, Documents, Finder
from infinipot.text.fetch import Bounds, is_address
from infinipot.text.files import Hashed, label

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.reading.reader import Reader
    from infinipot.recall.passages import Passage
    from infinipot.recipes.recipe import Recipe

log = logging.getLogger("infinipot.mcp")
PASTED = "text"  # what a text is called that comes without a title
Tell = Callable[[int, int | None, str], None]  # characters read, of how many, and in words


class StoppedError(InfiniPotError):
    """The caller no longer waits."""


@dataclass(frozen=True)
class Reach:
    """Which documents may be read: files in these folders, and addresses of the web if that is allowed."""

    folders: Sequence[Path]
    addresses: Bounds | None = None

    def found(self, name: str) -> str:
        """Return a name as it can be opened, if it is within reach; others are refused."""
        if is_address(name):
            return name
        folders = [folder.resolve() for folder in self.folders]
        try:
            path = folders[0] / Path(name).expanduser()
            real = path.resolve()
        except (OSError, RuntimeError, ValueError) as error:  # no such user, links in a circle, or NUL
            problem = f"{label(name)} is no name of a file"
            raise InputError(
                problem, field="path", remedy="give a path in a folder that may be read"
            ) from error
        if not any(real.is_relative_to(folder) for folder in folders):
            said = ", ".join(str(folder) for folder in folders)
            problem = f"{label(name)} is not in a folder that may be read ({said})"
            raise InputError(problem, field="folder", remedy="start the server with `folder`")
        return str(path)


class Pots:
    """Kept pots, and the model that reads and answers; safe to call from several threads.

    Model and recipe are loaded in the background, from the start on, by a function that is given.
    """

    def __init__(self, load: "Callable[[], tuple[Engine, Recipe]]", store: PotStore, reach: Reach) -> None:
        self._store, self._reach = store, reach
        self._background = ThreadPoolExecutor(1)
        self._loaded = self._background.submit(load)
        self._loaded.add_done_callback(_log_failure)
        self._background.shutdown(wait=False)
        self._lock = threading.Lock()  # one call at a time: there is one model
        self._last: tuple[str, Card, Reader] | None = None  # asked last, and often asked again

    @property
    def loaded(self) -> bool:
        """Say whether the model is there."""
        return self._loaded.done() and not self._loaded.exception()

    def listed(self) -> dict[str, Any]:
        """Return what is known of every pot."""
        return {"pots": [_told(name, card) for name, card in self._store.cards().items()]}

    def read(
        self, given: dict[str, Any], tell: Tell = lambda *_: None, stop: threading.Event | None = None
    ) -> dict[str, Any]:
        """Read a document, or a text, into a pot of a name; tell how far that is."""
        from infinipot.reading.progress import TextProgress
        from infinipot.store.match import card_of

        name, notes = check(given["pot"]), list[str]()
        append, replacing = given.get("append", False), given.get("replace", False)
        documents = self._documents(given, notes)
        titles = ", ".join(document.name for document in documents.all[:3])
        more = f" and {len(documents.all) - 3} more" if len(documents.all) > 3 else ""
        title = given.get("title") or titles + more
        with self._working(stop), self._store.lock(name):
            if not append:
                self._store.refuse(name, replacing)
            reader, recipe, before = self._opened(name, notes) if append else (*self._fresh(), None)
            text = Hashed(chain(["\n\n"] if before else [], documents.pieces()))
            progress, known = TextProgress(reader.tokenizer, reader.archived(text)), reader.tokens_read
            for step in reader.reading_tokens(progress.tokens()):
                if stop is not None and stop.is_set():
                    raise StoppedError("the reading was given up: nothing is kept")
                done, added = progress.read(step.tokens_read - known), step.tokens_read - known
                tell(done, documents.characters, f"{added:,} tokens, {step.cycles} cycles")
            told = "" if before else title, text.digest.hexdigest(), text.bytes, before
            card = card_of(self._loaded.result()[0], recipe, reader, *told)
            self._last = None
            card = self._store.save(name, reader.state(), card, replacing or append, reader.archive)
        return {**_told(name, card), "tokens_added": reader.tokens_read - known, "notes": notes}

    def ask(
        self, given: dict[str, Any], _tell: Tell | None = None, stop: threading.Event | None = None
    ) -> dict[str, Any]:
        """Answer a question about a pot, with the passages the answer may come from."""
        from infinipot.reading.sampling import Generation

        notes: list[str] = []
        question = _question(given)
        wanted = Generation(max_new_tokens=given.get("max_new_tokens", 256))
        with self._working(stop):
            reader = self._asked(check(given["pot"]), notes)
            reader.check(question, wanted.max_new_tokens)
            answer = reader.ask(question, wanted)
        passages = [_placed(passage) for passage in answer.passages]
        return {"answer": str(answer), "pot": given["pot"], "passages": passages, "notes": notes}

    def recall(
        self, given: dict[str, Any], _tell: Tell | None = None, stop: threading.Event | None = None
    ) -> dict[str, Any]:
        """Return the passages of a pot's text that matter for a question, in the text's order."""
        question, notes = _question(given), list[str]()
        with self._working(stop):
            reader = self._asked(check(given["pot"]), notes)
            if reader.archive is None:
                why = notes[0] if notes else f"pot '{given['pot']}' was read without an archive"
                raise StoreError(why, remedy="read its text again to recall passages")
            budget = given.get("tokens") or reader.config.capacity // 4
            found = reader.recall(question, min(budget, reader.config.capacity // 2))
            # A pot that still holds all needs no passages to answer; who asks for them gets them.
            encode = reader.tokenizer.encode
            found = found or search(reader.archive, [question], budget, lambda text: len(encode(text)))
        return {"pot": given["pot"], "passages": [_placed(passage) for passage in found]}

    def close(self) -> None:
        """Do not wait for the model any longer."""
        self._background.shutdown(wait=False, cancel_futures=True)

    def _documents(self, given: dict[str, Any], notes: list[str]) -> Documents:
        if ("text" in given) == ("path" in given):
            raise InputError("a document is a `path` or a `text`", field="path", remedy="give one of them")
        if "path" in given:
            return Finder(None, self._reach.addresses, notes.append).find([self._reach.found(given["path"])])
        text: str = given["text"]
        if not text.strip():
            raise InputError("the text is empty", field="text", remedy="give some words")
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode()  # halves of characters that JSON can carry
        return Documents([Document(label(given.get("title") or PASTED), len(text), lambda: iter([text]))])

    @contextmanager
    def _working(self, stop: threading.Event | None) -> Iterator[None]:
        """Wait for the model and for other calls; a caller who left in the meantime is not served."""
        self._loaded.result()
        with self._lock:
            if stop is not None and stop.is_set():
                raise StoppedError("the call was given up")
            yield

    def _fresh(self) -> "tuple[Reader, Recipe]":
        engine, recipe = self._loaded.result()
        recipe = replace(recipe, format=engine.format)
        return engine.reader(recipe), recipe

    def _opened(self, name: str, notes: list[str]) -> "tuple[Reader, Recipe, Card]":
        """Return a reader with a kept pot."""
        from infinipot.store.match import put_into, recipe_of

        self._store.require(name)
        engine, recipe = self._loaded.result()[0], recipe_of(self._store.card(name))
        reader = engine.reader(recipe)
        card, problem = put_into(reader, self._store, name, engine, recipe)
        if problem:
            notes.append(f"{problem}: nothing is recalled")
        return reader, recipe, card

    def _asked(self, name: str, notes: list[str]) -> "Reader":
        """Return a reader with a kept pot, the last one where its pot is still what was kept."""
        self._store.require(name)
        if self._last and self._last[:2] == (name, self._store.card(name)):
            return self._last[2]
        reader, _, card = self._opened(name, notes)
        self._last = None if notes else (name, card, reader)
        return reader


def _log_failure(loading: "Future[Any]") -> None:
    """Write to the log why the model was not loaded; a caller is told at the call."""
    if not loading.cancelled() and (error := loading.exception()):
        log.error("infinipot: %s", error)


def _question(given: dict[str, Any]) -> str:
    question = str(given["question"]).strip()
    if not question:
        raise InputError("the question is empty", field="question", remedy="ask something")
    return question


def _placed(passage: "Passage") -> dict[str, Any]:
    return {"place": passage.place, "text": passage.text}


def _told(name: str, card: Card) -> dict[str, Any]:
    sizes = {"tokens_read": card.tokens_read, "capacity": card.capacity}
    return {"pot": name, "title": card.title, "model": card.model, **sizes, "updated": card.updated}
