"""What runs with the core's packages alone, and what is said where an extra's are missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = {"torch", "transformers", "numpy", "safetensors", "filelock", "platformdirs"}
EXTRAS = ("gguf", "accelerate", "psutil", "pip", "typer", "rich", "matplotlib", "fastapi", "uvicorn", "ray")
ATTACHED = """
from families import build
from pathlib import Path
import small_tokenizers
from infinipot import Generation, Recipe, attach
from infinipot.engine import Engine
from infinipot.hf.model import HFModel
from infinipot.hf.tokenizer import HFTokenizer
from infinipot.store import open_store
from infinipot.store.match import card_of
model, tokenizer = build("llama-3.1"), small_tokenizers.build("gpt2")
model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
reader = attach(model, tokenizer, capacity=64, catalyst="a b", format="plain")
reader.read("The quick brown fox jumps over the lazy dog. " * 8)
said = reader.ask("so?", Generation(4))
engine = Engine("mine", "plain", reader.model, reader.tokenizer)
recipe = Recipe.named(capacity=64, catalyst="a b", format="plain")
store = open_store(FOLDER)
store.save("book", reader.state(), card_of(engine, recipe, reader, "A book", "c" * 64, 8))
other = engine.reader(recipe)
other.restore(store.load("book")[0])
assert other.ask("so?", Generation(4)) == said
print("done")
"""


def run(code: str, missing: tuple[str, ...], folder: Path) -> str:
    """Run code in a process of its own in which some packages cannot be imported; return its last line."""
    code = f"import sys\nsys.modules.update(dict.fromkeys({missing!r}))\nFOLDER = {str(folder)!r}\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "tests", capture_output=True, text=True, timeout=200
    )
    return (done.stderr + done.stdout).strip().splitlines()[-1]


def test_attach_read_ask_and_save_need_the_core_alone(tmp_path: Path) -> None:
    assert run(ATTACHED, EXTRAS, tmp_path) == "done"


@pytest.mark.parametrize(
    ("missing", "code", "says"),
    [
        ("typer", "from infinipot.cli import run; run()", "the command line needs more packages: .*[cli]"),
        ("rich", "from infinipot.cli import run; run()", "the command line needs more packages: .*[cli]"),
        (
            "gguf",
            "from pathlib import Path; from infinipot.hf.gguf import read_header\nread_header(Path('x'))",
            "a GGUF file needs more packages: .*[models]",
        ),
        (
            "psutil",
            "from infinipot.models.memory import available; available()",
            "looking at free memory needs more packages: .*[models]",
        ),
        (
            "fsspec",
            "from infinipot.store import open_store; open_store('s3://bucket/x')",
            "a store at an address needs more packages: .*[remote]",
        ),
    ],
    ids=["typer", "rich", "gguf", "psutil", "fsspec"],
)
def test_a_missing_package_is_one_line_with_its_extra(
    missing: str, code: str, says: str, tmp_path: Path
) -> None:
    line = run(code, (missing,), tmp_path)
    begin, _, extra = says.partition(".*")
    assert begin in line
    assert line.endswith(f"run pip install '.{extra}' in your copy of the repository")


def test_the_core_is_what_attach_needs_and_every_extra_named_exists() -> None:
    def name(requirement: str) -> str:
        return requirement.split(">")[0].split("[")[0].split("=")[0].strip()

    assert {name(one) for one in PROJECT["dependencies"]} == CORE
    extras = PROJECT["optional-dependencies"]
    for source in (ROOT / "src").rglob("*.py"):
        text = source.read_text()
        for found in re.split(r"'(?:infinipot|\.)\[", text)[1:]:
            named = found.partition("]")[0]
            assert named in extras or "{" in named
