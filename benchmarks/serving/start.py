"""A server as a process, of a real model or of a shape with random weights; its answers never end early.

    python benchmarks/serving/start.py '{"random": "llama-3-8b", "settings": {"slots": 64, "port": 8000}}'

Needs neither the command line's packages nor a hub: what `infinipot serve` does, with other weights.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2] / "src")]


def random_engine(shape: str, device: str, fused: bool) -> Any:
    """An engine with random weights, whose every token is one letter."""
    from infinipot.engine import Engine
    from infinipot.hf import plain, shapes
    from infinipot.hf.loading import choose_device, choose_dtype
    from infinipot.hf.model import HFModel
    from infinipot.hf.speed.prepare import prepare, resolve

    class Letters(plain.Words):
        def decode(self, ids: Any) -> str:
            return "".join(chr(97 + token % 26) for token in ids)

    on = choose_device(device)
    kind, mixed = resolve("auto", on)
    model = HFModel(shapes.build(shape, on, choose_dtype(kind, on)))
    computes = prepare(model, mixed, fused)
    return Engine(shape, "chat", model, Letters(), computes, "0" * 64)  # type: ignore[arg-type]  # Letters has what a server asks of one


def named_engine(name: str, device: str, fused: bool) -> Any:
    """An engine of a real model that does not stop."""
    from infinipot.engine import open_engine

    engine = open_engine(name, device, fused=fused, weights="full")
    engine.tokenizer.stop_ids = frozenset()
    return engine


def main(told: dict[str, Any]) -> None:
    """Serve until told to stop."""
    import torch

    from infinipot.recipes.recipe import Recipe
    from infinipot.server import lifecycle
    from infinipot.server.settings import Settings
    from infinipot.store import open_store

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("infinipot").setLevel(logging.INFO)
    settings = Settings(model=told.get("random") or told["model"], **told["settings"])
    taken = lifecycle.listen(settings)
    fused = bool(told.get("fuse")) and torch.cuda.is_available()
    made = random_engine if told.get("random") else named_engine
    engine = made(settings.model, settings.device, fused)
    sizes = {"capacity": settings.capacity, "recall": settings.recall, "pot_bits": settings.pot_bits}
    recipe = Recipe.named(**sizes, format=engine.dialogue_format)
    lifecycle.serve(lifecycle.build_app(settings, engine, recipe, open_store(settings.store)), taken)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
