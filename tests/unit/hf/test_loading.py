from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file

from gguf_oracle import unpacked
from infinipot.errors import ConfigError, InfiniPotError, ModelError
from infinipot.hf import loading
from infinipot.hf.gguf import describe, read_header
from infinipot.hf.loading import Loaded, load
from infinipot.hf.quiet import quiet
from infinipot.models import catalog, memory
from infinipot.models.cache import Pull
from infinipot.models.download import Progress
from toy_release import Seller


@pytest.fixture(scope="session")
def tiny_folder(written_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folder")
    describe(written_gguf, folder, "tiny")
    with quiet():
        unpacked(written_gguf)[0].half().save_pretrained(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    return folder


def failing(name: str, **options: object) -> str:
    with pytest.raises(InfiniPotError) as caught:
        load(name, **options)  # type: ignore[arg-type]  # wrong on purpose in some rows
    assert "\n" not in str(caught.value)
    return str(caught.value)


# names


def test_near_miss_is_suggested() -> None:
    assert failing("qwen2.5-coder-1.5") == (
        "unknown model 'qwen2.5-coder-1.5': did you mean 'qwen2.5-coder-1.5b'?; or give a hub id such as "
        "org/name, a folder, or a .gguf file"
    )


def test_names_that_lead_nowhere(tmp_path: Path, tiny_gguf: Path) -> None:
    assert "unknown model 'xyz': use one of smollm2, " in failing("xyz")
    assert "no file or folder ./nowhere" in failing("./nowhere")
    assert "no file or folder gone/model.gguf" in failing("gone/model.gguf")
    assert "no config.json: is it" in failing(str(tmp_path))
    shutil.copy(tiny_gguf, tmp_path)
    assert f"give the file itself: {tmp_path / 'tiny.gguf'}" in failing(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    assert "cannot read" in failing(str(tmp_path))
    assert "is not a model" in failing(str(tmp_path / "config.json"))


def test_folder_without_weights_is_one_line(tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copy(tiny_folder / "config.json", tmp_path)
    assert failing(str(tmp_path)).startswith(f"cannot load {tmp_path} (")


@pytest.mark.parametrize("keep", [0, 3, 30, 400, 20_000])
def test_broken_gguf_is_one_line(keep: int, tiny_gguf: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny_gguf.read_bytes()[:keep])
    assert "is not a whole GGUF file" in failing(str(broken))


def test_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("name not known\nand more")

    monkeypatch.setattr(huggingface_hub, "model_info", refuse)
    message = failing("some-org/some-name")
    assert message.startswith(
        "cannot find some-org/some-name on the model hub (name not known): check the name"
    )


def test_hub_model_that_does_not_fit_is_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(safetensors=SimpleNamespace(total=70 * 10**9))
    monkeypatch.setattr(huggingface_hub, "model_info", lambda *_, **__: found)
    assert "some-org/some-name needs 280.0 GB in float32" in failing("some-org/some-name", device="cpu")


# what is loaded


def ends(loaded: Loaded) -> object:
    """The tokens that end an answer."""
    return loaded.model.generation_config.eos_token_id


def test_folder(tiny_folder: Path) -> None:
    loaded = load(str(tiny_folder), device="cpu")
    assert loaded.model.dtype == torch.float32
    assert (loaded.format, loaded.add_bos, ends(loaded)) == ("chat", True, [0, 2])
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert loaded.tokenizer("a").input_ids[0] == loaded.tokenizer.bos_token_id


def test_gguf_file_equals_its_converted_folder(tiny_folder: Path, tiny_gguf: Path) -> None:
    direct, folder = load(str(tiny_gguf), device="cpu"), load(str(tiny_folder), device="cpu")
    ids = torch.tensor([direct.tokenizer("hello").input_ids])
    with torch.no_grad():
        assert torch.allclose(direct.model(ids).logits, folder.model(ids).logits, atol=1e-2)
    assert (direct.format, direct.add_bos, ends(direct)) == (folder.format, folder.add_bos, ends(folder))


def test_missing_alias_is_pulled_once_through_the_callers_bar(
    sell: Seller, home: Path, tiny_gguf: Path
) -> None:
    sell(tiny_gguf.read_bytes())
    seen: list[Progress] = []

    def watch(pull: Pull) -> None:
        seen.extend(pull)

    loaded = load("toy", device="cpu", on_pull=watch)
    assert loaded.format == "plain"  # the catalogue's format, although it can chat
    assert {step.stage for step in seen} == {"downloading", "joining", "preparing"}
    seen.clear()
    load("toy", device="cpu", on_pull=watch)
    assert seen == []


@pytest.mark.parametrize("wrong", [{"dtype": "int1"}, {"weights": "fp8"}, {"weights": "int1"}])
def test_what_this_machine_cannot_do_is_refused_before_a_download(
    wrong: dict[str, str], sell: Seller, home: Path, tiny_gguf: Path
) -> None:
    sell(tiny_gguf.read_bytes())
    seen: list[Progress] = []
    with pytest.raises(ConfigError):
        load("toy", device="cpu", on_pull=seen.extend, **wrong)
    assert seen == []


def test_quiet_silences_and_restores(capfd: pytest.CaptureFixture[str], tiny_gguf: Path) -> None:
    from transformers.utils import logging

    before = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    load(str(tiny_gguf), device="cpu")
    with quiet():
        warnings.warn("not for users", stacklevel=1)
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


# device and dtype


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert loading.choose_device("auto") == torch.device("cpu")
    for absent in ("cuda", "mps", "cuda:1", "potato"):
        with pytest.raises(ConfigError, match=f"device '{absent}' is not there: use one of auto, cpu"):
            loading.choose_device(absent)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert loading.choose_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(loading.sys, "platform", "linux")
    for name in loading.ALLOCATOR:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:native")  # what a user set stays alone
    assert loading.choose_device("auto") == torch.device("cuda")
    assert "PYTORCH_CUDA_ALLOC_CONF" not in os.environ
    monkeypatch.delenv("PYTORCH_ALLOC_CONF")
    assert loading.choose_device("auto") == torch.device("cuda")
    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert loading.choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ConfigError):
        loading.choose_device("cuda:2")


def test_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert loading.choose_dtype("auto", cpu) == torch.float32
    assert loading.choose_dtype("bfloat16", cpu) == torch.bfloat16
    with pytest.raises(ConfigError, match="unknown dtype 'int4': use one of float32"):
        loading.choose_dtype("int4", cpu)
    for native, family, expected in [
        (True, "gemma3_text", torch.bfloat16),
        (False, "llama", torch.float16),
        (False, "gemma3_text", torch.float32),
    ]:
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, on=native: on)
        assert loading.choose_dtype("auto", cuda, family) == expected


# memory


def test_model_that_does_not_fit_is_refused(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device="cpu": 1_100_000_000)
    monkeypatch.setattr(memory, "folder_bytes", lambda folder, itemsize: 1_550_000_000 * itemsize)
    name = str(tiny_folder)
    assert failing(name, device="cpu") == (
        f"{name} needs 6.2 GB in float32 and 1.1 GB is free: try `dtype` bfloat16, a smaller model such as "
        "smollm2, or a machine with more memory"
    )
    assert "needs 3.1 GB in bfloat16 and 1.1 GB is free: try a smaller model" in failing(
        name, device="cpu", dtype="bfloat16"
    )


def test_allocation_that_fails_anyway_is_one_line(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ModelError("cannot load") from RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(loading, "read_model", fail)
    assert "does not fit into memory: try `dtype`" in failing(str(tiny_folder), device="cpu")


def test_weights_are_counted_from_headers(tiny_folder: Path, tiny_gguf: Path, tmp_path: Path) -> None:
    count = read_header(tiny_gguf).index.parameters
    assert memory.folder_bytes(tiny_folder, 4) == 4 * count
    tensors = {"a": torch.zeros(10, 10, dtype=torch.bfloat16), "packed": torch.zeros(10, dtype=torch.int32)}
    for shard in ("one.safetensors", "model.safetensors"):
        save_file(tensors, tmp_path / shard)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "one.safetensors"}}')
    assert memory.folder_bytes(tmp_path, 4) == 440
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(bytes(100))
    assert memory.folder_bytes(tmp_path / "pickled", 4) == 200


@pytest.mark.parametrize("version", [1, 2])
def test_control_group_limits_are_respected(version: int, tmp_path: Path) -> None:
    group = tmp_path / ("a/b" if version == 2 else "memory/a/b")
    group.mkdir(parents=True)
    limit, use, prefix = ("memory.max", "memory.current", "")
    if version == 1:
        limit, use, prefix = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
    for folder, allowed in ((group, "max" if version == 2 else str(2**62)), (group.parent, "1000")):
        (folder / limit).write_text(allowed + "\n")
        (folder / use).write_text("700\n")
        (folder / "memory.stat").write_text(f"anon 400\n{prefix}inactive_file 200\n{prefix}active_file 100\n")
    proc = tmp_path / "cgroup"
    proc.write_text("0::/a/b\n" if version == 2 else "5:cpu:/x\n4:memory:/a/b\n")
    assert min(memory.group_room(proc, tmp_path)) == 600
    assert list(memory.group_room(tmp_path / "absent", tmp_path)) == []


def test_available_is_positive() -> None:
    assert memory.available() > 0


# the real thing


@pytest.mark.model
@pytest.mark.timeout(900)  # a download of 98 MB, where no other test came first
def test_default_model_knows_the_capital_of_france() -> None:
    loaded = load(catalog.DEFAULT_MODEL, device="cpu")
    assert (loaded.format, loaded.add_bos, ends(loaded)) == ("plain", False, [0, 2])
    ids = loaded.tokenizer("The capital of France is", return_tensors="pt")
    written = loaded.model.generate(**ids, max_new_tokens=2, do_sample=False)[0, ids.input_ids.shape[1] :]
    assert loaded.tokenizer.decode(written).startswith(" Paris")
