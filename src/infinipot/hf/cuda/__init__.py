"""Weights in few bits on a CUDA card: how they are laid out, rounded, multiplied and loaded."""
