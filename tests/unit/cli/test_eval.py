"""`infinipot eval` and `infinipot report` as a user meets them, on a toy model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import toy_eval
from infinipot.cli import given
from infinipot.cli.main import app
from infinipot.errors import InfiniPotError
from infinipot.eval.folder import read_manifest, read_rows

SMALL = ["--capacity", "160,192", "--catalyst", "Say it again", "--lengths", "400,600", "--trials", "1"]


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(given, "open_engine", lambda *_, **__: toy_eval.engine())
    monkeypatch.chdir(tmp_path)
    yield
    torch.set_num_threads(threads)


def call(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_a_grid_is_run_and_shown_and_reported() -> None:
    done = call(
        "eval", "passkey", "--recipe", "infinipot,truncate", *SMALL, "--depths", "0.5", "--novelty", "0,0.5"
    )
    assert done.exit_code == 0, done.output
    assert 'infinipot 160 novelty=0 "Say it' in done.stdout
    assert "0 of 12 rows are done already" in done.stderr
    assert "infinipot report results/passkey" in done.stderr
    assert len(read_rows(Path("results/passkey"))) == 12
    assert read_manifest(Path("results/passkey"))["options"] == {
        "lengths": [400, 600],
        "depths": [0.5],
        "trials": 1,
        "limit": None,
    }
    told = call("report", "results/passkey")
    assert "| truncate 160 | 0.0 | 0.0 | 0.0 [0.0, 65.8] |" in told.stdout
    assert Path("results/passkey/report/index.html").exists()
    files = json.loads(call("report", "results/passkey", "--out", "there", "--json").stdout)["files"]
    assert files[0] == "there/index.html"


def test_json_is_one_document_and_nothing_else() -> None:
    done = call(
        "eval",
        "needle",
        "-r",
        "truncate",
        "--capacity",
        "160",
        "--lengths",
        "400",
        "--trials",
        "1",
        "--json",
        "--out",
        "o",
    )
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["out"] == "o"
    assert told["errors"] == told["bad"] == []
    (cell,) = told["cells"]
    assert (cell["cell"], cell["score"], cell["rows"]) == ("truncate 160", 0.0, 3)
    assert cell["interval"][0] == 0


def test_errors_and_bad_rows_are_told_at_the_end(tmp_path: Path) -> None:
    good = {"ordered_kv_records": [["a", "b"]], "key": "a", "value": "b"}
    long = {"ordered_kv_records": [["k" * 200, "b"]], "key": "k" * 200, "value": "b"}
    lines = [json.dumps(good), "{", json.dumps(long)]
    (tmp_path / "kv_75_keys.jsonl").write_text("\n".join(lines))
    done = call("eval", "kv-retrieval", "--data", str(tmp_path), "-r", "ccd", "--capacity", "200")
    assert done.exit_code == 0
    assert "kv_75_keys.jsonl, line 2: not JSON" in done.stderr
    assert "ccd 200, kv_75_keys/kv_75_keys-3: a question of" in done.stderr
    told = json.loads(
        call(
            "eval", "kv-retrieval", "--data", str(tmp_path), "-r", "ccd", "--capacity", "200", "--json"
        ).stdout
    )
    assert (told["cells"][0]["rows"], told["cells"][0]["errors"]) == (2, 1)
    assert len(told["bad"]) == len(told["errors"]) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["eval", "pasky"], "did you mean 'passkey'?"),
        (["eval", "passkey", "-r", "infinipto"], "did you mean 'infinipot'?"),
        (
            ["eval", "passkey", "--capacity", "many"],
            "`capacity` is 'many': use a whole number such as 2048 or 4k",
        ),
        (["eval", "passkey", "--keep", "2.5"], "`keep` is '2.5'"),
        (["eval", "passkey", "--set", "heavy"], "'heavy' is no setting"),
        (["eval", "passkey", "--set", "heavy=4"], "unknown setting of recipe 'infinipot' 'heavy'"),
        (["eval", "passkey", "--catalyst", "generl"], "did you mean 'general'?"),
        (["eval", "passkey", "--workers", "2"], "is for `engine` ray"),
        (["eval", "longbench", "--data", "nowhere"], "there is no folder nowhere"),
        (
            ["eval", "passkey", "--capacity", "16", "--lengths", "400"],
            "infinipot 16 question: capacity 16 is too small",
        ),
        (["report", "nowhere"], "nowhere holds no run"),
    ],
)
def test_what_cannot_work_is_one_line(words: list[str], says: str) -> None:
    with pytest.raises(InfiniPotError) as caught:
        call(*words)
    assert says in str(caught.value)
    assert not Path("results").exists()


def test_ctrl_c_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    script = (
        "import sys, toy_eval\n"
        "from infinipot.cli import main, given\n"
        "from infinipot.eval.tasks.passkey import PasskeyTask\n"
        "import time\n"
        "given.open_engine = lambda *_, **__: toy_eval.engine()\n"
        "PasskeyTask.score = lambda *_: time.sleep(0.1) or 0.0\n"
        "main.run()\n"
    )
    words = ["eval", "passkey", "-r", "truncate", "--capacity", "160", "--lengths", "400", "--trials", "20"]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    run = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    rows = tmp_path / "results" / "passkey" / "rows.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (rows.exists() and rows.stat().st_size):
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    told = run.communicate(timeout=30)[1].decode()
    assert run.returncode == 130
    assert "rows are in results/passkey; run the same command to go on" in told
    assert "Traceback" not in told
    before = len(read_rows(tmp_path / "results" / "passkey"))
    assert 0 < before < 60
    call(*words)
    assert len(read_rows(tmp_path / "results" / "passkey")) == 60


def test_help_and_wrong_options_load_nothing_heavy() -> None:
    code = (
        "import sys; from infinipot.cli import main; sys.argv = ['infinipot', 'eval', '--help']\n"
        "try:\n    main.run()\nexcept SystemExit:\n    pass\n"
        "print([n for n in ('torch', 'matplotlib', 'pandas', 'transformers', 'ray') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--recipe" in done.stdout
