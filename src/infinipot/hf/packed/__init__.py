"""Weights that stay in few bits: blocks as GGUF files hold them, and products on them by ggml's kernels."""
