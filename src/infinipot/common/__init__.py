"""Help that several rooms share, each once: suggestions, sizes, whole files, out-of-memory."""
