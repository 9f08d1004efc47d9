"""Every module is exercised by `make test`: reads what `pytest --cov` left in .coverage.

    python tests/house/coverage_of_modules.py

What runs in processes of its own (a server, a worker on Ray) is not measured, so the least is low.
"""

from __future__ import annotations

import sys
from pathlib import Path

from coverage import Coverage

LEAST = 35  # percent of a module's statements
SOURCE = Path(__file__).resolve().parents[2] / "src"


def untested() -> list[str]:
    """Modules with fewer statements run than `LEAST` percent."""
    coverage = Coverage()
    coverage.load()
    found = []
    for name in sorted(coverage.get_data().measured_files()):
        if not Path(name).is_relative_to(SOURCE):  # a module that a test wrote, and that is gone
            continue
        _, statements, _, missing, _ = coverage.analysis2(name)
        share = 100 if not statements else 100 * (1 - len(missing) / len(statements))
        module = str(Path(name)).rpartition("/infinipot/")[2]
        if share < LEAST:
            found.append(f"{module}: {share:.0f}%")
    return found


if __name__ == "__main__":
    if few := untested():
        sys.exit(f"modules that `make test` hardly runs (least {LEAST}%):\n" + "\n".join(few))
