"""InfiniPot: read text of any length in a fixed number of KV-cache entries."""

__version__ = "0.1.0"
