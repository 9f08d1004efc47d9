from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from infinipot.errors import ModelError
from infinipot.models import cache as store
from infinipot.models import memory
from infinipot.models.download import Progress
from toy_release import TEMPLATE, Seller, Shop

DATA = bytes(range(256)) * 40


def write_little(gguf: Path, folder: Path, alias: str) -> bool:
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())
    return True


def run(alias: str = "toy", convert: store.Converter = write_little) -> list[Progress]:
    return list(store.pull(alias, convert))


def hidden(home: Path) -> list[str]:
    return [path.name for path in (home / "models").glob(".*")]


def test_pull_converts_a_gguf_that_reloads_the_same(sell: Seller, home: Path, tiny_gguf: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from infinipot.hf.gguf import convert, load_gguf

    sell(tiny_gguf.read_bytes())
    assert [step.stage for step in run(convert=convert)][-1] == "converting"
    folder = store.path("toy")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    direct, original = load_gguf(tiny_gguf, torch.float32)

    text = "hello <|im_start|>there<|im_end|> 12 ü"
    ids = tokenizer(text).input_ids
    assert ids == original(text).input_ids
    assert ids[0] == 1  # the file asks for a BOS, which transformers forgets
    assert tokenizer.chat_template == original.chat_template == TEMPLATE
    batch = torch.tensor([ids])
    with torch.no_grad():
        ours, theirs = model(batch).logits, direct(batch).logits
    assert (ours - theirs).abs().max() < 1e-2
    assert (ours.argmax(-1) == theirs.argmax(-1)).all()
    assert model.generation_config.eos_token_id == [0, 2]
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    assert not (home / "partial" / "toy").exists()
    assert not hidden(home)


def test_card_size_and_removal(sell: Seller, home: Path) -> None:
    release = sell(DATA)
    assert store.installed() == ()
    run()
    (model,) = store.installed()
    assert (model.path, model.card.alias, model.card.add_bos) == (home / "models" / "toy", "toy", True)
    assert (model.card.source_sha256, model.card.dtype) == (release.sha256, "float16")
    assert model.size > len(DATA)
    assert store.remove("toy") == model.size
    assert store.installed() == ()
    assert not hidden(home)
    with pytest.raises(ModelError, match=r"toy is not installed: there is none"):
        store.remove("toy")


def test_second_pull_does_nothing(sell: Seller, shop: Shop, home: Path) -> None:
    sell(DATA)
    run()
    assert run() == []
    assert shop.served == {"toy_part0": 1, "toy_part1": 1}


def test_model_of_another_source_or_version_is_made_again(sell: Seller, home: Path) -> None:
    sell(DATA)
    run()
    card = store.path("toy") / store.CARD
    card.write_text(card.read_text().replace('"store_version": 1', '"store_version": 0'))
    assert store.card("toy") is None
    run()
    assert store.card("toy") is not None


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ModelError("no")])
def test_failed_conversion_leaves_no_model_and_keeps_the_download(
    sell: Seller, shop: Shop, home: Path, failure: BaseException
) -> None:
    def fail(gguf: Path, folder: Path, alias: str) -> bool:
        write_little(gguf, folder, alias)
        raise failure

    sell(DATA)
    with pytest.raises(failure if isinstance(failure, type) else type(failure)):
        run(convert=fail)
    assert store.card("toy") is None
    assert list((home / "models").iterdir()) == []
    run()
    assert store.card("toy") is not None
    assert shop.served == {"toy_part0": 1, "toy_part1": 1}


def test_leftovers_of_a_killed_pull_are_swept(sell: Seller, home: Path) -> None:
    sell(DATA)
    stale = home / "models" / ".toy.new"
    stale.mkdir(parents=True)
    (stale / store.CARD).write_text("{}")
    (home / "models" / "toy").mkdir()  # a folder without its card is not a model
    assert store.installed() == ()
    run()
    assert not hidden(home)
    assert store.card("toy") is not None


def test_two_processes_convert_once(sell: Seller, shop: Shop, home: Path, tmp_path: Path) -> None:
    release, log = sell(DATA), tmp_path / "log"
    script = textwrap.dedent(f"""
        import time
        from infinipot.models import catalog, cache as store
        from infinipot.models.catalog import Part, Release
        def write(gguf, folder, alias):
            with open({str(log)!r}, "a") as file:
                file.write("converted\\n")
            time.sleep(1)
            (folder / "model.safetensors").write_bytes(b"x")
            return False
        catalog.RELEASES = ({release!r},)
        list(store.pull("toy", write))
        assert store.card("toy")
    """)
    both = [subprocess.Popen([sys.executable, "-c", script], env=dict(os.environ)) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert log.read_text() == "converted\n"
    assert shop.served == {"toy_part0": 1, "toy_part1": 1}


def test_waiting_for_another_pull_is_reported(
    sell: Seller, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sell(DATA)
    monkeypatch.setattr(store, "POLL_S", 0.05)
    first, second = store.pull("toy", write_little), store.pull("toy", write_little)
    next(first)
    assert next(second) == Progress("waiting", 0, 0)
    with pytest.raises(ModelError, match="being pulled by another process"):
        store.remove("toy")
    first.close()
    assert next(second).stage == "downloading"
    second.close()


def test_conversion_that_does_not_fit_is_refused(
    sell: Seller, home: Path, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infinipot.hf.gguf import convert

    sell(tiny_gguf.read_bytes())
    monkeypatch.setattr(memory, "available", lambda device="cpu": 1000)
    with pytest.raises(
        ModelError, match=r"^converting toy needs 0.2 MB and 0.0 MB is free: close other programs"
    ):
        run(convert=convert)


def test_folder_that_cannot_be_written_is_one_line(
    sell: Seller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sell(DATA)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INFINIPOT_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"^cannot store toy: .*set INFINIPOT_HOME"):
        run()


def test_home_is_the_users_cache_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFINIPOT_HOME", raising=False)
    assert store.root().name == "infinipot"
    monkeypatch.setenv("INFINIPOT_HOME", "~/pots")
    assert store.root() == Path.home() / "pots"


def test_unknown_alias_is_suggested() -> None:
    with pytest.raises(ModelError, match=r"unknown model 'smollm': did you mean 'smollm2'\?"):
        store.path("smollm")
