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
from infinipot.models.download import Progress
from toy_release import TEMPLATE, Seller, Shop

DATA = bytes(range(256)) * 40


def write_little(gguf: Path, folder: Path, alias: str) -> None:
    (folder / "config.json").write_bytes(gguf.read_bytes()[:10])


def run(alias: str = "toy", describe: store.Filler = write_little) -> list[Progress]:
    return list(store.pull(alias, describe))


def hidden(home: Path) -> list[str]:
    return [path.name for path in (home / "models").glob(".*")]


def test_pull_describes_a_gguf_that_loads_as_transformers_loads_it(
    sell: Seller, home: Path, tiny_gguf: Path
) -> None:
    import torch

    from gguf_oracle import unpacked
    from infinipot.hf.gguf import describe, load_gguf

    sell(tiny_gguf.read_bytes())
    assert [step.stage for step in run(describe=describe)][-1] == "preparing"
    folder = store.path("toy")
    model, tokenizer, _ = load_gguf(folder / store.GGUF, torch.float32)
    theirs, original = unpacked(tiny_gguf)

    text = "hello <|im_start|>there<|im_end|> 12 ü"
    ids = tokenizer(text).input_ids
    assert ids[1:] == original(text).input_ids
    assert ids[0] == 1  # the file asks for a BOS, which transformers forgets
    assert tokenizer.chat_template == original.chat_template == TEMPLATE
    found = dict(model.state_dict())
    for name, weight in theirs.state_dict().items():
        assert torch.equal(found.pop(name), weight), name
    assert not found
    assert model.generation_config.eos_token_id == [0, 2]
    assert not (home / "partial" / "toy").exists()
    assert not hidden(home)


def test_card_size_and_removal(sell: Seller, home: Path) -> None:
    release = sell(DATA)
    assert store.installed() == ()
    run()
    (model,) = store.installed()
    assert (model.path, model.card.alias) == (home / "models" / "toy", "toy")
    assert model.card.source_sha256 == release.sha256
    assert (model.path / store.GGUF).read_bytes() == DATA
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
    card.write_text(card.read_text().replace('"store_version": 2', '"store_version": 0'))
    assert store.card("toy") is None
    run()
    assert store.card("toy") is not None


def test_cards_of_older_versions_tell_more(sell: Seller, home: Path) -> None:
    sell(DATA)
    run()
    card = store.path("toy") / store.CARD
    told = json.loads(card.read_text())
    card.write_text(json.dumps({**told, "add_bos": True, "format": "chat", "converter": {"gguf": "0.19.0"}}))
    assert store.card("toy") is not None  # else it would be fetched again
    for wrong in ("[]", "{}", "1"):
        card.write_text(wrong)
        assert store.card("toy") is None


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ModelError("no")])
def test_failed_description_leaves_no_model_and_keeps_the_download(
    sell: Seller, shop: Shop, home: Path, failure: BaseException
) -> None:
    def fail(gguf: Path, folder: Path, alias: str) -> None:
        write_little(gguf, folder, alias)
        raise failure

    sell(DATA)
    with pytest.raises(failure if isinstance(failure, type) else type(failure)):
        run(describe=fail)
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


def test_two_processes_describe_once(sell: Seller, shop: Shop, home: Path, tmp_path: Path) -> None:
    release, log = sell(DATA), tmp_path / "log"
    script = textwrap.dedent(f"""
        import time
        from infinipot.models import catalog, cache as store
        from infinipot.models.catalog import Part, Release
        def write(gguf, folder, alias):
            with open({str(log)!r}, "a") as file:
                file.write("described\\n")
            time.sleep(1)
            (folder / "config.json").write_bytes(b"x")
        catalog.RELEASES = ({release!r},)
        list(store.pull("toy", write))
        assert store.card("toy")
    """)
    both = [subprocess.Popen([sys.executable, "-c", script], env=dict(os.environ)) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert log.read_text() == "described\n"
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
