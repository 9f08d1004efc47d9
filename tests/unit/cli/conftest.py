"""A tiny model for commands that load one."""

from __future__ import annotations

import pytest
import torch
import transformers as tf

import small_tokenizers


@pytest.fixture(autouse=True)
def no_config(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of whoever runs the tests does not count."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random Llama with a ChatML tokenizer, saved as a folder."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = small_tokenizers.build("qwen")
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = tf.LlamaConfig(vocab_size=len(tokenizer) + 8, **sizes, **heads, **ends)
    tf.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
