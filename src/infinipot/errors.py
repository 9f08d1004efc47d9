"""One exception tree. Every message is one line that says what to do next.

The command line prints the message and exits with `exit_code`; nothing else
in the project decides how an error looks.
"""

from __future__ import annotations


class InfiniPotError(Exception):
    """Base of every error a user can cause or meet."""

    exit_code = 2


class ConfigError(InfiniPotError):
    """A size or option that cannot work."""


class InputError(InfiniPotError):
    """A text or file that cannot be read."""


class ModelError(InfiniPotError):
    """A model that is unknown, unsupported or does not fit."""


class DownloadError(ModelError):
    """Weights that could not be fetched whole."""


class PotOverflowError(InfiniPotError):
    """More entries than the pot holds; the caller must distil first."""


class StoreError(InfiniPotError):
    """A pot that is not there, not whole, or cannot be kept."""
