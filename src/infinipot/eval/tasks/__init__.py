"""Examples and their scoring; no torch, no model."""
