"""The sole importer of transformers: loading, tokenizers, the cache, the attention function."""
