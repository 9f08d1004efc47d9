"""What matters of a load, as lines of a table."""

from __future__ import annotations


def rows(found: dict) -> list[tuple[str, str, str]]:
    """Part, figure and value of every line."""
    told = [*_many(found), *_fair(found.get("fair"))]
    if one := found.get("whole"):
        told.append(("whole", f"whole caches held of {one.get('of')}", one.get("users"), "users"))
    for part in ("many", "fair", "visitors", "soak"):
        if held := found.get(part, {}).get("memory"):
            told.append((part, "most memory", held["most_bytes"] / 1e9, "GB"))
            told.append((part, "printed bound", held["memory_bound_bytes"] / 1e9, "GB"))
    return [(part, what, _number(value, unit)) for part, what, value, unit in told]


def _many(found: dict) -> list[tuple[str, str, object, str]]:
    told: list[tuple[str, str, object, str]] = []
    ideal = None
    if documents := found.get("bench", {}).get("documents"):
        ideal = documents[-1].get("tokens_s")
        told.append(("bench", f"{documents[-1]['documents']} documents", ideal, "tokens/s"))
    for name, one in found.get("many", {}).items():
        if name == "memory":
            continue
        answered = f"{one['answered']} of {one['requests']} answered"
        alone = one.get("tokens_s_all_answering")
        told.append((name, answered, one.get("tokens_s"), "tokens/s"))
        told.append((name, "while all answer", alone, "tokens/s"))
        if ideal and alone:
            told.append((name, "share of bench", 100 * alone / ideal, "%"))
        told.append((name, "between tokens, p95", one["gap_p95_ms"], "ms"))
        told.append((name, "first token, p95", one["first_p95_s"], "s"))
    return told


def _fair(one: dict | None) -> list[tuple[str, str, object, str]]:
    if one is None:
        return []
    first = one["short_questions"]["first_p95_s"]
    return [
        ("fair", "all at once", one["quiet"].get("tokens_s"), "tokens/s"),
        ("fair", "one after the other", one.get("apart", {}).get("steady_tokens_s"), "tokens/s"),
        ("fair", "between tokens, p95, quiet", one["quiet"]["gap_p95_ms"], "ms"),
        ("fair", "while a text is read", one["busy"]["gap_p95_ms"], "ms"),
        ("fair", "times quiet", one["p95_times_quiet"], "x"),
        ("fair", "first token of a short question, p95", first, "s"),
        ("fair", "text read in", one["text_read_s"], "s"),
    ]


def _number(value: object, unit: str) -> str:
    return f"{value:,.4g} {unit}" if isinstance(value, int | float) else "-"
