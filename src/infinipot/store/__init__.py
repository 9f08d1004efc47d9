"""Pots that are kept: one safetensors file each, on a disk or at any fsspec address."""

import os
from pathlib import Path

from platformdirs import user_data_path

from infinipot.errors import StoreError
from infinipot.store.base import PotStore
from infinipot.store.card import Card
from infinipot.store.local import LocalStore
from infinipot.store.remote import open_remote

__all__ = ["Card", "LocalStore", "PotStore", "StoreError", "open_store"]


def open_store(address: str | None = None) -> PotStore:
    """Return the store at a path or an fsspec address such as s3://bucket/pots; by default the user's own."""
    if address is None:
        home = os.environ.get("INFINIPOT_HOME")
        return LocalStore((Path(home).expanduser() if home else user_data_path("infinipot")) / "pots")
    if not address.strip():
        remedy = "give a folder, or an address such as s3://bucket/pots"
        raise StoreError("the store's address is empty", field="store", remedy=remedy)
    if "://" not in address and "::" not in address:
        return LocalStore(Path(address).expanduser())
    return open_remote(address)
