"""Parts of `benchmarks/load.py`: a server of any model or shape, clients, and what stands beside them."""
