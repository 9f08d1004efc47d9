"""`python -m infinipot` is the command `infinipot`."""

import runpy

import pytest

import infinipot


def test_the_package_runs_as_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["infinipot", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("infinipot", run_name="__main__")
    assert ended.value.code == 0
    assert infinipot.__version__ in capsys.readouterr().out
