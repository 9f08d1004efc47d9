"""A wheel built from this tree works in an empty environment, with everything the package needs in it."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import infinipot
from house.sources import PACKAGE, ROOT, files

pytestmark = pytest.mark.timeout(240)
NOT_SHIPPED = frozenset({"__pycache__"})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the backend of pyproject.toml, which is installed here already."""
    folder = tmp_path_factory.mktemp("wheel")
    code = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    _run([sys.executable, "-c", code], cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel, and of everything else what is installed here (torch is large)."""
    folder = tmp_path_factory.mktemp("empty")
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], cwd=folder)
    found = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(found), "--disable-pip-version-check"]
    _run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], cwd=folder)
    packages = next(folder.glob("lib/python*/site-packages"))
    # Each line is appended to sys.path; .pth files in that folder (editable installs) are not read.
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()))
    return found


def _run(command: list[str], cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    ours = {path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*") if path.is_file()}
    assert inside == {str(path) for path in ours if not NOT_SHIPPED & {*path.parts}}
    assert {f"infinipot/{name}" for name in files()} <= inside
    assert {Path(name).suffix for name in inside} >= {".json", ".html", ".js", ".css"}  # prompts, pages


def test_the_installed_wheel_is_what_runs(python: Path, tmp_path: Path) -> None:
    place = _run([str(python), "-c", "import infinipot; print(infinipot.__file__)"], tmp_path).strip()
    assert Path(place).is_relative_to(python.parents[1])
    command = str(python.with_name("infinipot"))
    assert _run([command, "--version"], tmp_path).strip() == f"infinipot {infinipot.__version__}"
    assert "infinipot" in [row["name"] for row in json.loads(_run([command, "recipes", "--json"], tmp_path))]


def test_the_installed_wheel_reads_and_answers(python: Path, tmp_path: Path) -> None:
    code = (
        "from infinipot import Recipe\n"
        "from infinipot.testing.model import ToyModel\n"
        "from infinipot.testing.tokenizer import ByteTokenizer\n"
        "reader = Recipe.named(capacity=64, catalyst='a b').reader(ToyModel(), ByteTokenizer())\n"
        "reader.read('The rain fell in torrents. ' * 20)\n"
        "print(reader.tokens_read > 500)"
    )
    assert _run([str(python), "-c", code], tmp_path).strip() == "True"
