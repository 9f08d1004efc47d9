"""Products laid out for a CPU: the plain model's outputs, exactly or as near as bfloat16 products can be."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from families import build
from infinipot.errors import ConfigError
from infinipot.hf.model import HFModel
from infinipot.hf.speed import prepare
from infinipot.hf.speed.products import ABSENT, Head, Product, has_bfloat16, pack
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.testing.tokenizer import ByteTokenizer
from toy_release import write_gguf

IDS = torch.arange(1, 40)[None]
FAMILIES = ["llama-3.1", "llama-3.2", "qwen2.5", "gemma-2", "gemma-3", "phi-3"]


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def check_logits(family: str, dtype: torch.dtype, most: float) -> None:
    plain, packed = build(family), copy.deepcopy(build(family))
    assert pack(packed, packed.base_model, dtype)
    assert not any(isinstance(module, nn.Linear) for module in packed.modules())
    wanted = plain(IDS).logits
    assert relative(packed(IDS).logits, wanted) < most
    assert relative(packed(IDS[:, :1]).logits, plain(IDS[:, :1]).logits) < most
    for module in packed.modules():
        if isinstance(module, Product):
            assert module.joint.seen is None
            assert module.joint.parts == ()


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_same_logits(family: str) -> None:
    check_logits(family, torch.float32, 1e-5)


@pytest.mark.needs_bfloat16
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_nearly_the_same_logits_in_bfloat16(family: str) -> None:
    check_logits(family, torch.bfloat16, 0.03)


@torch.no_grad()
def check_head(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    head = nn.Linear(48, 500, bias=True)
    x = torch.randn(2, 3, 48)
    wanted = head(x)
    found = Head(head, dtype)(x)
    best = wanted.topk(10).indices
    torch.testing.assert_close(found.gather(-1, best), wanted.gather(-1, best))
    many = torch.randn(1, 200, 48)
    assert relative(Head(head, dtype)(many), head(many)) < 0.01
    return found, wanted


@pytest.mark.needs_bfloat16
def test_the_likeliest_next_tokens_are_exact() -> None:
    found, wanted = check_head(torch.bfloat16)
    assert not torch.equal(found, wanted)  # the others are not


def test_the_head_is_exact_in_float32() -> None:
    found, wanted = check_head(torch.float32)
    torch.testing.assert_close(found, wanted)


def test_products_in_bfloat16_are_refused_where_the_processor_has_none(monkeypatch) -> None:
    monkeypatch.setenv(ABSENT, "1")
    monkeypatch.setattr(prepare, "has_int8", lambda: False)
    assert not has_bfloat16()
    with pytest.raises(ConfigError, match="no bfloat16 instructions"):
        Head(nn.Linear(8, 8))
    model = copy.deepcopy(build("llama-3.1"))
    with pytest.raises(ConfigError, match="no bfloat16 instructions"):
        pack(model, model.base_model, torch.bfloat16)
    assert prepare.resolve("auto", torch.device("cpu")) == ("float32", False)


@torch.no_grad()
def test_a_sibling_asked_alone_or_with_another_input_is_right() -> None:
    plain, packed = build("llama-3.1"), copy.deepcopy(build("llama-3.1"))
    pack(packed, packed.base_model, torch.float32)
    ours, theirs = packed.model.layers[0].self_attn, plain.model.layers[0].self_attn
    x, y = torch.randn(2, 1, 3, theirs.q_proj.in_features)
    torch.testing.assert_close(ours.v_proj(x), theirs.v_proj(x))
    ours.q_proj(x)
    torch.testing.assert_close(ours.k_proj(y), theirs.k_proj(y))
    torch.testing.assert_close(ours.k_proj(x), theirs.k_proj(x))


def test_a_packed_model_reads_as_the_plain_one() -> None:
    said = []
    for packs in (False, True):
        model = HFModel(copy.deepcopy(build("llama-3.1")))
        if packs:
            assert prepare.prepare(model) == "float32"
        reader = Recipe.named(capacity=64, catalyst="a b").reader(model, ByteTokenizer())
        reader.read("The quick brown fox jumps over the lazy dog. " * 6)
        said.append((reader.pot.pot_layers[0].source.tolist(), reader.ask("so?", Generation(12))))
    assert said[0] == said[1]


def test_what_a_dtype_means_on_a_device(monkeypatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(prepare, "has_bfloat16", lambda: True)
    assert prepare.resolve("auto", cpu) == prepare.resolve("mixed", cpu) == ("float32", True)
    assert prepare.resolve("float32", cpu) == ("float32", False)
    assert prepare.resolve("auto", cuda) == ("auto", False)
    with pytest.raises(ConfigError, match="bfloat16 on cuda"):
        prepare.resolve("mixed", cuda)
    monkeypatch.setattr(prepare, "has_bfloat16", lambda: False)
    monkeypatch.setattr(prepare, "has_int8", lambda: True)
    assert prepare.resolve("auto", cpu) == ("float32", True)
    assert prepare.resolve("float32", cpu) == ("float32", False)
    monkeypatch.setattr(prepare, "has_int8", lambda: False)
    assert prepare.resolve("auto", cpu) == ("float32", False)
    with pytest.raises(ConfigError, match="float32"):
        prepare.resolve("mixed", cpu)


def test_weights_in_full_stay_exact_where_only_packed_ones_are_rounded(monkeypatch) -> None:
    monkeypatch.setattr(prepare, "has_bfloat16", lambda: False)
    monkeypatch.setattr(prepare, "has_int8", lambda: True)
    model, plain = HFModel(copy.deepcopy(build("llama-3.1"))), build("llama-3.1")
    assert prepare.prepare(model, mixed=True) == "float32"
    with torch.no_grad():
        assert relative(model.model(IDS).logits, plain(IDS).logits) < 1e-5
    assert prepare.prepare(HFModel(copy.deepcopy(plain)), mixed=True, packed=True) == "float32"  # none are


HARDENED = """
import ctypes, platform, sys
if platform.system() != "Linux" or ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, Linux 6.3
    sys.exit("no such rule here")
from infinipot.engine import open_engine
from infinipot.recipes.recipe import Recipe
for weights in ("auto", "full"):
    engine = open_engine(sys.argv[1], "cpu", "auto", weights=weights)
    reader = engine.reader(Recipe.named(capacity=256))
    reader.read("The sea was calm. " * 60)
    print(weights, engine.dtype, bool(reader.ask("What?")))
"""


def test_where_memory_may_not_become_executable_products_need_no_onednn(tmp_path: Path) -> None:
    """It makes machine code as it goes: texts are read without it, packed weights or not."""
    write_gguf(tmp_path / "tiny.gguf", "Q8_0")
    command = [sys.executable, "-c", HARDENED, str(tmp_path / "tiny.gguf")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.stderr.endswith("no such rule here\n"):
        pytest.skip("needs Linux 6.3 or later")
    assert done.stdout.splitlines() == ["auto float32 True", "full float32 True"], done.stderr
