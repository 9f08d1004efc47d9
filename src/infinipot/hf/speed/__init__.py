"""A loaded transformers model made fast on its device; its results stay."""
