"""What people would use instead: the same weights, lengths and columns; a peer that cannot says why."""
