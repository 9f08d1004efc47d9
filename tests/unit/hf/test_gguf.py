"""Descriptions of GGUF files: whose they are, who makes them, and what is refused."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch

from gguf_oracle import unpacked
from infinipot.errors import ModelError
from infinipot.hf import gguf
from infinipot.hf.gguf import describe, described, load_gguf
from infinipot.hf.packed.gguf_index import Index
from toy_release import write_gguf


@pytest.fixture
def quantised(home: Path, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, "Q8_0")
    return path


def test_a_file_is_described_once(quantised: Path, home: Path) -> None:
    folder = described(quantised)
    assert folder.is_relative_to(home)
    stamp = (folder / Index.FILE).stat().st_mtime_ns
    assert described(quantised) == folder
    assert (folder / Index.FILE).stat().st_mtime_ns == stamp
    assert json.loads((folder / Index.FILE).read_text())["architecture"] == "llama"


def test_a_header_is_read_once_for_all_that_is_wanted(
    quantised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gguf as package

    read, made = list[Path](), package.GGUFReader
    once, thrice = tmp_path / "once", tmp_path / "thrice"

    def counted(path: Path) -> Any:
        read.append(Path(path))
        return made(path)

    monkeypatch.setattr(package, "GGUFReader", counted)
    once.mkdir()
    describe(quantised, once, "tiny")
    assert len(read) == 1
    assert package.GGUFReader is counted  # nobody else's readers are changed
    monkeypatch.setattr(gguf, "_read_once", nullcontext)
    thrice.mkdir()
    describe(quantised, thrice, "tiny")
    assert len(read) > 2
    files = [{file.name: file.read_bytes() for file in folder.iterdir()} for folder in (once, thrice)]
    assert files[0] == files[1]


def test_what_lies_beside_a_file_is_not_taken_for_its_own(quantised: Path, tmp_path: Path) -> None:
    """A pulled model has its description beside it; one of an older make is made anew."""
    described_alone, again = tmp_path / "alone", tmp_path / "again"
    for folder in (described_alone, again):
        folder.mkdir()
    describe(quantised, described_alone, "tiny")
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        (tmp_path / name).write_text((described_alone / name).read_text())
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
    describe(quantised, again, "tiny")
    alone = {file.name: file.read_bytes() for file in described_alone.iterdir() if file.is_file()}
    assert alone == {file.name: file.read_bytes() for file in again.iterdir() if file.is_file()}
    assert "chat_template.jinja" in alone


def test_a_file_is_described_by_one_at_a_time(quantised: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, begun, whole = [], Barrier(2), gguf.describe

    def slowly(file: Path, folder: Path, alias: str) -> None:
        asked.append(alias)
        time.sleep(0.5)
        whole(file, folder, alias)

    def ask() -> Path:
        begun.wait()
        return described(quantised)

    monkeypatch.setattr(gguf, "describe", slowly)
    with ThreadPoolExecutor(2) as pool:
        one, other = (future.result() for future in [pool.submit(ask) for _ in range(2)])
    assert one == other
    assert asked == [str(quantised)]
    assert Index.load(one).places
    assert not list(one.parent.glob("*.new"))


def test_another_file_beside_a_described_one_is_not_read_by_its_index(tmp_path: Path, home: Path) -> None:
    for name, kind in (("model", "Q8_0"), ("other", "F16")):
        write_gguf(tmp_path / f"{name}.gguf", kind)
    describe(tmp_path / "model.gguf", tmp_path, "model")  # as the folder of a pulled model is
    assert described(tmp_path / "model.gguf") == tmp_path
    assert described(tmp_path / "other.gguf").is_relative_to(home)
    is_as_transformers_reads_it(tmp_path / "other.gguf")
    (tmp_path / "other.gguf").replace(tmp_path / "model.gguf")
    assert described(tmp_path / "model.gguf").is_relative_to(home)
    is_as_transformers_reads_it(tmp_path / "model.gguf")


def is_as_transformers_reads_it(path: Path) -> None:
    found = load_gguf(path, torch.float32)[0].state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in unpacked(path)[0].state_dict().items())


def test_an_index_of_an_older_version_is_made_anew(quantised: Path, tmp_path: Path, home: Path) -> None:
    describe(quantised, tmp_path, "tiny")
    told = json.loads((tmp_path / Index.FILE).read_text())
    del told["header"]
    (tmp_path / Index.FILE).write_text(json.dumps(told))
    assert described(quantised).is_relative_to(home)


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 1 << 40},
        {"offset": -64},
        {"kind": 999},
        {"shape": [-64, -32]},
        {"shape": [64, 31]},
        {"shape": []},
    ],
)
def test_an_index_that_cannot_be_right_is_one_line(
    wrong: dict[str, Any], quantised: Path, tmp_path: Path
) -> None:
    describe(quantised, tmp_path, "tiny")
    told = json.loads((tmp_path / Index.FILE).read_text())
    name, *rest = next(one for one in told["places"] if one[0] == "blk.1.ffn_up.weight")
    fields = dict(zip(("kind", "shape", "offset", "size"), rest, strict=True)) | wrong
    told["places"] = [[name, *fields.values()] if one[0] == name else one for one in told["places"]]
    (tmp_path / Index.FILE).write_text(json.dumps(told))
    with pytest.raises(ModelError, match=r"tensors.json is damaged \(.*\): remove it, and it is made anew$"):
        load_gguf(quantised, torch.float32, 0)
