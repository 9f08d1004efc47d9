"""Figures 2 and 3 and Table 8 of the paper, averaged over rows of a benchmark."""
