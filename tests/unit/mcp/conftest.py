"""Pots with a toy model, and a tiny model in a folder for a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infinipot.engine import Engine
from infinipot.mcp.pots import Pots, Reach
from infinipot.recipes.recipe import Recipe
from infinipot.store import open_store
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

from ..cli.conftest import model  # noqa: F401  a fixture


def toy_engine() -> Engine:
    return Engine("toy", "chat", ToyModel(), ByteTokenizer(), "float32", "0" * 64)  # type: ignore[arg-type]


@pytest.fixture
def pots(tmp_path: Path) -> Pots:
    (tmp_path / "texts").mkdir()
    return Pots(
        lambda: (toy_engine(), RECIPE), open_store(str(tmp_path / "pots")), Reach([tmp_path / "texts"])
    )


RECIPE = Recipe.named(capacity=1024, recall=400)
Loading = Callable[[], Engine]
