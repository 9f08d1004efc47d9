"""One leaf file per eviction method; none imports another."""
