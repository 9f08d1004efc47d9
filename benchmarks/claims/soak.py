"""What docs/results.md says of a soak of the server."""

from __future__ import annotations

from claims.checks import Says
from claims.raw import document

PAGE = "docs/results.md"


def claimed(says: Says) -> None:
    _on_two_cores(says)
    found = document("soak-card.json")
    says(PAGE, "({} senders left early; [soak-card.json]", sum(found["left"].values()))
    idle = found["held"]["idle"] and not found["left_on_disk"] and not found["slots_busy_afterwards"]
    words = "no failure, {} answers of 429, every slot free and nothing left on disk. The host's memory"
    says(PAGE, words, found["answered_429"], holds=idle and not found["failures"])
    held = found["resident_bytes"]
    grew = 100 * held["growth"], held["peak"] / 1e9
    says(PAGE, "memory grew by {:.1f}% from the second tenth to the last, to {:.2f} GB", *grew)
    card = found["server_says_bytes"]
    numbers = 100 * card["growth"], card["peak"] / 1e9, found["bound_bytes"] / 1e9
    says(PAGE, "what it held of the card by {:.1f}%, to {:.2f} GB of {:.2f} GB printed.", *numbers)
    several = document("soaks-card.json").values()
    tenths = [one["resident_bytes"]["by_tenth"] for one in several]
    usual, arena, graphs, modules = ((sizes[-1] - sizes[1]) / 1e6 for sizes in tenths)
    says(PAGE, "grew by {:.0f} MB as it was, {:.0f} MB with a single arena", usual, arena)
    says(PAGE, "{:.0f} MB with all of CUDA's modules loaded at once and {:.0f} MB without", modules, graphs)


def _on_two_cores(says: Says) -> None:
    found = document("soak-cpu.json")
    says(PAGE, "{:,} requests of nine kinds", found["requests"], holds=len(found["done"]) == 9)
    says(PAGE, "{} of whose senders left early ([soak-cpu.json]", sum(found["left"].values()))
    idle = found["held"]["idle"] and not found["left_on_disk"] and not found["slots_busy_afterwards"]
    words = "no failure, {} answers of 429, every slot free and nothing left on disk afterwards."
    says(PAGE, words, found["answered_429"], holds=idle and not found["failures"])
    held = found["resident_bytes"]
    tenths = [size / 1e6 for size in held["by_tenth"]]
    words = "memory was {:.1f}% higher in the last tenth of the run than in the second"
    says(PAGE, words, 100 * held["growth"])
    says(PAGE, "and {:.1f}% lower than in the third;", 100 * (1 - tenths[-1] / tenths[2]))
    says(PAGE, "{:.2f} GB at most of {:.2f} GB printed.", held["peak"] / 1e9, found["bound_bytes"] / 1e9)
