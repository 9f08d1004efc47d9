"""One tenant's kept pots, as the scheduler uses them: only pots that fit this server's model and recipe."""

import logging
from contextlib import ExitStack

import torch

from infinipot.core.cuda.capturing import apart_from_capture, to_host
from infinipot.core.state import State
from infinipot.engine import Engine
from infinipot.errors import StoreError
from infinipot.reading.held_words import Word, words_of
from infinipot.reading.reader import Reader
from infinipot.recall.archive import Archive
from infinipot.recipes.recipe import Recipe
from infinipot.server.scheduler.memory_bound import MemoryBound
from infinipot.server.scheduler.requests import ReadIntoPot
from infinipot.server.settings import PUBLIC
from infinipot.store import Card, PotStore, match

log = logging.getLogger("infinipot.server")
# The last part of the names of what is computed with.
COMPUTED = ("keys", "values", "anchors", "last", "offset", "key_scale", "value_scale")


def tenant_store(store: PotStore, tenant: str) -> PotStore:
    """Return a tenant's pots; without keys there is one tenant, who has what `infinipot read` keeps too."""
    return store if tenant == PUBLIC else store.space(tenant)


class PotLibrary:
    """A tenant's pots."""

    def __init__(self, engine: Engine, recipe: Recipe, store: PotStore, memory: MemoryBound) -> None:
        self.store = store
        self._engine, self._recipe, self._memory = engine, recipe, memory
        self._held: dict[ReadIntoPot, ExitStack] = {}  # by identity: two requests may be alike

    def hold(self, request: ReadIntoPot) -> None:
        """Hold a name against other writers until `let_go`; refuse at once what cannot end well."""
        if any(other.name == request.name for other in self._held):  # one thread may take a lock twice
            raise StoreError(f"pot '{request.name}' is being written: try again when that is done")
        self._held[request] = ExitStack()
        self._held[request].enter_context(self.store.lock(request.name, wait_s=0))
        if request.append:
            self.store.require(request.name)
        else:
            self.store.refuse(request.name, request.replace)

    def let_go(self, request: ReadIntoPot) -> None:
        """Let others write the pot again."""
        if held := self._held.pop(request, None):
            held.close()

    def load(self, name: str) -> tuple[State, Card]:
        """Return a pot after checking that this model and recipe made it, wherever its file comes from."""
        card = self.store.card(name)
        match.require(card, self._engine, self._recipe, name)
        if card.bytes > self._memory.largest > 0:
            raise StoreError(f"pot '{name}' is larger than any of its recipe: read its text again")
        state, loaded = self.store.load(name)
        if loaded != card:  # replaced since it was looked at
            raise StoreError(f"pot '{name}' was replaced while it was read: try again")
        used = (t for name, t in state.tensors.items() if name.rpartition(".")[2] in COMPUTED and t.numel())
        # A NaN would spread to the pot's next user.
        if not all(bool(torch.isfinite(end)) for tensor in used for end in tensor.aminmax()):
            raise StoreError(f"pot '{name}' holds numbers that are none: read its text again")
        return state, loaded

    def archive(self, name: str, card: Card, most_bytes: int | None) -> Archive | None:
        """Return the archive of a pot that was loaded; None where there is none that is whole and fits."""
        try:
            return self.store.archive(name, card, most_bytes)
        except StoreError as error:  # the pot itself is whole
            log.warning("%s: nothing is recalled", error)
            return None

    def words(self, name: str) -> list[Word]:
        """Return the words a pot holds."""
        state, _ = self.load(name)
        tokenizer = self._engine.tokenizer
        return words_of(state, tokenizer, len(tokenizer.frame(self._recipe.format).opening))

    def version(self, name: str) -> str:
        """Name a pot's content: another one after every change."""
        card = self.store.card(name)
        return f"{name}/{card.updated}/{card.tokens_read}/{card.source_sha256}"

    def save(self, request: ReadIntoPot, reader: Reader, before: Card | None) -> Card:
        """Keep what a reader has read; `before` is the card of the pot that was appended to."""
        source = request.title, request.sha256, request.bytes
        card = match.card_of(self._engine, self._recipe, reader, *source, before)
        if reader.archive is not None and reader.archive.problem:
            log.warning("%s: nothing of that pot will be recalled", reader.archive.problem)
        replace = request.replace or request.append
        with apart_from_capture():  # another thread than the model's
            state = reader.state()
            state = State(to_host(state.tensors), state.numbers)
        return self.store.save(request.name, state, card, replace, reader.archive)
