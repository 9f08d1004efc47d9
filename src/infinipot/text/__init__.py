"""Texts, ids and what lies between: files, windows, tokenizers, detokenizing. No tensors."""
