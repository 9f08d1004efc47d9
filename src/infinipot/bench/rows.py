"""One measured line: the same columns for every recipe of ours and every peer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

DIFFERENT = 0.1  # a GGUF file may hold the embedding once or twice


@dataclass(frozen=True)
class Row:
    """What one system did with a text of one length.

    A peer that could not has `failed` and no figures. Memory is beyond the weights: on a
    GPU what torch allocated and reserved at most, elsewhere what the cache holds and, with
    everything, the process's largest resident set so far.
    """

    system: str
    ours: bool
    length: int
    capacity: int | None = None
    keep: int | None = None
    failed: str = ""
    note: str = ""
    engine: str = ""
    warm_up_s: float | None = None
    first_token_s: float | None = None
    reading_s: float | None = None
    decode_ms: float | None = None
    cycles: int | None = None
    cache_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    process_peak_bytes: int | None = None
    weight_bytes: int | None = None
    parameters: int | None = None  # where it may not be the model of the others

    @property
    def memory_bytes(self) -> int | None:
        """Memory beyond the weights: what torch has taken of the card; it counts nothing else of graphs."""
        return self.cache_bytes if self.reserved_bytes is None else self.reserved_bytes

    @property
    def tokens_s(self) -> float | None:
        """Tokens read a second."""
        return self.length / self.reading_s if self.reading_s else None

    def describe(self, parameters: int, ceilings: dict[str, float]) -> dict[str, Any]:
        """Return the row as JSON-ready data, with its fractions of the machine's ceilings."""
        found = {name: _short(value) for name, value in asdict(self).items()}
        if self.parameters and abs(self.parameters / parameters - 1) > DIFFERENT:
            found["note"] = f"another model, of {self.parameters / 1e6:,.0f} million parameters; {self.note}"
        found["tokens_s"] = _short(self.tokens_s)
        found["memory_bytes"] = self.memory_bytes
        matmul, copy = ceilings.get("matmul_tflops"), ceilings.get("copy_gb_s")
        work = 2 * (self.parameters or parameters) * self.length / 1e12
        flops = work / self.reading_s if self.reading_s else None
        found["matmul_share"] = _short(flops / matmul) if flops and matmul else None
        sustained = ceilings.get("matmul_tflops_sustained")
        found["matmul_share_sustained"] = _short(flops / sustained) if flops and sustained else None
        floor = self.weight_bytes / copy / 1e6 if self.weight_bytes and copy else None
        found["copy_share"] = _short(floor / self.decode_ms) if floor and self.decode_ms else None
        return found


def _short(value: Any) -> Any:
    """Four to six digits are all a clock can tell."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
