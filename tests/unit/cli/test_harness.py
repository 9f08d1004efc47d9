"""`infinipot harness` as a user meets it: what it passes on, its help, and a task from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partialmethod
from pathlib import Path

import pytest
import torch
import transformers as tf

import small_tokenizers
from commands import run
from harness_tasks import write_tasks
from infinipot.cli.harness import completed


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two tasks of our own, without lm-eval's thousands, whose files it would read first."""
    from lm_eval.tasks import TaskManager

    alone = partialmethod(TaskManager.__init__, include_defaults=False)
    monkeypatch.setattr(TaskManager, "__init__", alone)
    return write_tasks(tmp_path)


def test_what_the_command_passes_on() -> None:
    ours = ["--model", "infinipot", "--device", "auto"]
    assert completed(["--tasks", "a"]) == [*ours, "--tasks", "a"]
    assert completed(["run", "--tasks=a"]) == ["run", *ours, "--tasks=a"]
    assert completed(["--device", "cpu"]) == ["--model", "infinipot", "--device", "cpu"]
    assert completed(["--model=hf", "-L", "2"]) == ["--model=hf", "-L", "2"]
    assert completed(["-M", "infinipot"]) == ["--device", "auto", "-M", "infinipot"]
    assert completed(["ls", "tasks"]) == ["ls", "tasks"]


def test_a_config_file_may_name_the_model(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: hf\ntasks: [a]\n")
    assert completed(["--config", str(path)]) == ["--config", str(path)]
    path.write_text("model: infinipot\n")
    assert completed(["-C", str(path)]) == ["-C", str(path)]
    path.write_text("tasks: [a]\ndevice: cpu\n")
    assert completed(["--config", str(path)]) == ["--model", "infinipot", "--config", str(path)]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys\nsys.argv = ['infinipot', *{list(words)!r}]\n"
    code += "from infinipot.cli.main import run\n"
    code += "try: run()\nfinally: print(sorted({'torch', 'lm_eval'} & set(sys.modules)), file=sys.stderr)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("words", [["--help"], ["harness", "--help"], ["harness"]])
def test_help_needs_neither_torch_nor_lm_eval(words: list[str]) -> None:
    done = command(*words)
    assert done.returncode == (0 if "--help" in words else done.returncode)
    assert "harness" in done.stdout
    assert done.stderr.strip().endswith("[]")
    if words[0] == "harness":
        assert "harness run --help" in done.stdout


def test_without_lm_eval_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("lm_eval.", "infinipot.eval.harness"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    done = run("harness", "--tasks", "x")
    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[0] == (
        "infinipot: the lm-eval harness needs more packages: "
        "run pip install '.[harness]' in your copy of the repository"
    )


@pytest.fixture
def model(tmp_path: Path) -> str:
    torch.manual_seed(1)
    tokenizer = small_tokenizers.build("qwen")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = tf.LlamaConfig(vocab_size=len(tokenizer) + 8, **sizes, eos_token_id=None, bos_token_id=None)
    tf.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def test_the_command_runs_a_task(tasks: Path, model: str) -> None:
    out = tasks / "out"
    done = run(
        *("harness", "--model_args", f"model={model},capacity=192,prompt_tokens=32,dtype=float32"),
        *("--tasks", "letters_say,letters_pick", "--include_path", str(tasks), "--limit", "3"),
        *("--device", "cpu", "--batch_size", "2", "--output_path", str(out)),
    )
    assert done.returncode == 0, done.stderr
    assert b"letters_pick" in done.stdout
    told = json.loads(next(out.rglob("results_*.json")).read_text())
    assert told["config"]["model"] == "infinipot"
    assert told["config"]["infinipot"]["capacity"] == 192


def test_a_wrong_task_is_one_line(tasks: Path) -> None:
    done = run("harness", "--tasks", "letters_sy", "--include_path", str(tasks))
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False), done.stderr
    assert (
        "infinipot: Tasks not found: letters_sy: `infinipot harness ls tasks` lists them"
        in done.stderr.decode()
    )
