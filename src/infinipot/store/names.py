"""Which names a pot, or a tenant, may have: few characters, so that no name can leave its folder.

Only what is allowed is listed. Separators, `%2e`, look-alike dots, NUL and the rest of Unicode
need no rules of their own.
"""

from __future__ import annotations

import re

from infinipot.errors import InputError

LONGEST = 64
_ALLOWED = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST - 1}}}")
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)  # files on Windows


def check(name: str) -> str:
    """Return the name, or say what a name may look like."""
    if not isinstance(name, str) or not _ALLOWED.fullmatch(name) or ".." in name or name.endswith("."):
        text = ascii(name)
        raise InputError(
            f"{text if len(text) <= LONGEST + 2 else f'{text[:LONGEST]}...'} is no name for a pot",
            remedy=f"use up to {LONGEST} of A-Z a-z 0-9 . _ -, a letter or digit first, no dot last, no two "
            "dots together",
        )
    if _DEVICE.fullmatch(name):
        raise InputError(f"'{name}' is the name of a device on Windows", remedy="choose another name")
    return name
