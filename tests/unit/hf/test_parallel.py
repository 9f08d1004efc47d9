"""A model in several places: tensor parallel over two processes; accelerate's device map and hooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from families import build
from infinipot.hf.model import HFModel
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.testing.tokenizer import ByteTokenizer

TEXT = "The quick brown fox jumps over the lazy dog. " * 6
RANK = """
import json, os, sys, torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig
from test_parallel import read, told
torch.set_num_threads(1)
config = DistributedConfig(tp_plan="auto")
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32, distributed_config=config)
found = told(read(model))
with open(os.path.join(sys.argv[1], f"rank{dist.get_rank()}.json"), "w") as out:
    json.dump(found, out)
dist.destroy_process_group()
"""


def read(model) -> Reader:
    one = Recipe.named(capacity=64, catalyst="a b").reader(HFModel(model), ByteTokenizer())
    one.read(TEXT)
    return one


def told(one: Reader) -> dict:
    layers = one.pot.pot_layers
    return {
        "kept": [layer.source[0, :, : layer.fill].tolist() for layer in layers],  # [layer][head][slot]
        "logits": one.model.logits(one.session.state.last_hidden).flatten().tolist(),
        "answer": one.ask("what?", Generation(12)),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build("llama-3.1").save_pretrained(tmp_path)
    return tmp_path


def test_two_ranks_keep_and_say_what_one_does(folder: Path) -> None:
    script = folder / "rank.py"
    script.write_text(RANK)
    here = Path(__file__)
    paths = os.pathsep.join([str(here.parent), str(here.parents[2]), *filter(None, sys.path)])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            script,
            folder,
        ],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    alone = told(read(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)))
    ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
    for index, heads in enumerate(alone["kept"]):  # each rank holds its own head, and chooses for it alone
        assert [rank["kept"][index][0] for rank in ranks] == heads
        assert all(len(rank["kept"][index]) == 1 for rank in ranks)
    for rank in ranks:
        assert rank["answer"] == alone["answer"]
        assert rank["logits"] == pytest.approx(alone["logits"], abs=1e-5)


def test_a_device_map_with_hooks_changes_nothing(folder: Path) -> None:
    places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "lm_head": "cpu", "model.rotary_emb": "cpu"}
    places |= {f"model.layers.{index}": "disk" if index == 1 else "cpu" for index in range(3)}
    spread = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, device_map=places, offload_folder=folder / "off"
    )
    assert HFModel(spread).obstacle == "weights are moved while the model runs"
    alone = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert told(read(spread)) == told(read(alone))
