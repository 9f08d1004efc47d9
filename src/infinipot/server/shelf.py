"""One tenant's kept pots, as the kitchen uses them: only pots that fit this server's model and recipe."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from infinipot.core.state import State
from infinipot.engine import Engine
from infinipot.errors import StoreError
from infinipot.reading.held_words import Word, words_of
from infinipot.reading.reader import Reader
from infinipot.recipes.recipe import Recipe
from infinipot.server.keys import PUBLIC
from infinipot.server.memory import Memory
from infinipot.server.orders import Brew
from infinipot.store import Card, PotStore, match

COMPUTED = ("keys", "values", "anchors", "last")  # the last part of the names of what is computed with


def space(store: PotStore, tenant: str) -> PotStore:
    """Return a tenant's pots; without keys there is one tenant, who has what `infinipot read` keeps too."""
    return store if tenant == PUBLIC else store.space(tenant)


def _finite(state: State) -> bool:
    """Say whether all that is computed with is finite: a NaN would spread to whoever has the slots next."""
    used = (t for name, t in state.tensors.items() if name.rpartition(".")[2] in COMPUTED and t.numel())
    return all(bool(torch.isfinite(end)) for tensor in used for end in tensor.aminmax())


class Shelf:
    """A tenant's pots."""

    def __init__(self, engine: Engine, recipe: Recipe, store: PotStore, memory: Memory) -> None:
        self._engine, self._recipe, self._store, self._memory = engine, recipe, store, memory
        self._held: dict[Brew, ExitStack] = {}  # by identity: two orders may be alike

    def hold(self, order: Brew) -> None:
        """Hold a name against other writers until `let_go`; refuse at once what cannot end well."""
        if any(other.name == order.name for other in self._held):  # one thread may take a lock twice
            raise StoreError(f"pot '{order.name}' is being written: try again when that is done")
        self._held[order] = ExitStack()
        self._held[order].enter_context(self._store.lock(order.name, wait_s=0))
        if order.append:
            self._store.require(order.name)
        else:
            self._store.refuse(order.name, order.replace)

    def let_go(self, order: Brew) -> None:
        """Let others write it again."""
        if held := self._held.pop(order, None):
            held.close()

    def load(self, name: str) -> tuple[State, Card]:
        """Return a pot after checking that it was made by this model and recipe, whoever sent it."""
        card = self._store.card(name)
        match.require(card, self._engine, self._recipe, name)
        if card.bytes > self._memory.largest > 0:
            raise StoreError(f"pot '{name}' is larger than any of its recipe: read its text again")
        state, loaded = self._store.load(name)
        if loaded != card:  # replaced since it was looked at
            raise StoreError(f"pot '{name}' was replaced while it was read: try again")
        if not _finite(state):
            raise StoreError(f"pot '{name}' holds numbers that are none: read its text again")
        return state, loaded

    def words(self, name: str) -> list[Word]:
        """Return the words a pot holds."""
        state, _ = self.load(name)
        tokenizer = self._engine.tokenizer
        return words_of(state, tokenizer, len(tokenizer.frame(self._recipe.format).opening))

    def version(self, name: str) -> str:
        """Name a pot's content: another one after every change."""
        card = self._store.card(name)
        return f"{name}/{card.updated}/{card.tokens_read}/{card.source_sha256}"

    def save(self, order: Brew, reader: Reader, before: Card | None) -> Card:
        """Keep what a reader has read; `before` is the card of what it was appended to."""
        card = match.card_of(
            self._engine, self._recipe, reader, order.title, order.sha256, order.bytes, before
        )
        replace = order.replace or order.append
        return self._store.save(order.name, reader.state(), card, replace)
