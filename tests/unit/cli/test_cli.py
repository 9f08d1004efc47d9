"""The command line as a user meets it, with a tiny random model in a folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import small_documents
import small_tokenizers
from commands import run

COMMAND = [sys.executable, "-m", "infinipot.cli.main"]


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("It was a dark and stormy night; <|im_end|> the rain fell.\n" * 60)
    return str(path)


def test_ask_prints_exactly_one_json_document(model: str, text: str) -> None:
    done = run("ask", "--file", text, "--model", model, "--capacity", "192", "--json", "What fell?")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told) == {
        "answer",
        "tokens_read",
        "cycles",
        "capacity",
        "keep",
        "engine",
        "passages",
        "peak_memory_bytes",
        "seconds",
        "model",
        "recipe",
    }
    assert told["engine"] == "plain: graphs need a CUDA device, not cpu"
    tokenizer = small_tokenizers.build("qwen")
    whole = tokenizer(Path(text).read_text(), add_special_tokens=False, split_special_tokens=True)
    assert told["tokens_read"] == len(whole["input_ids"])
    assert told["cycles"] > 5
    assert (told["capacity"], told["keep"]) == (192, 96)
    assert set(told["seconds"]) == {"load", "read", "answer"}
    assert told["recipe"]["format"] == "chat"


def test_a_recipe_is_one_flag_away_and_says_what_it_bounds(model: str, text: str) -> None:
    options = ["--model", model, "--capacity", "192", "--json", "--max-new-tokens", "3"]
    hurried = ["--recipe", "h2o", "--set", "heavy=8", "--step", "16"]
    told = json.loads(run("ask", "--file", text, *hurried, *options, "What fell?").stdout)
    assert (told["capacity"], told["keep"]) == (192, 176)
    assert told["recipe"]["heavy"] == 8
    assert told["recipe"]["note"] == "drops 16 entries at a time instead of one"
    told = json.loads(run("ask", "--file", text, "--recipe", "full", *options, "What fell?").stdout)
    assert told["capacity"] is told["keep"] is None
    assert told["recipe"]["bounds"] == "nothing"
    talk = run("chat", "--recipe", "truncate", *options, stdin=b"hello\nagain\n")
    assert [set(json.loads(line)) for line in talk.stdout.splitlines()] == [{"reply", "cycles", "fill"}] * 2
    shown = run(
        "ask", "--file", text, "--recipe", "snapkv", "--model", model, "--capacity", "64", "What fell?"
    )
    assert b"not bounded" in shown.stderr
    assert b"snapkv: bounds nothing until the prompt ends" in shown.stderr


def test_several_files_and_standard_input_are_read_in_order(model: str, text: str, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("The end.")
    options = ["--model", model, "--capacity", "192", "--json", "--max-new-tokens", "2"]
    once = run("ask", "-f", text, "-f", str(other), *options, "So?")
    names = f"File: {Path(text).name}\n\n{Path(text).read_text()}\n\nFile: other.txt\n\nThe end."
    piped = run("ask", "-f", "-", *options, "So?", stdin=names.encode())
    assert json.loads(once.stdout)["tokens_read"] == json.loads(piped.stdout)["tokens_read"]


def test_an_answer_goes_to_stdout_and_notes_to_stderr(model: str, text: str) -> None:
    done = run("ask", "-f", text, "--model", model, "--capacity", "192", "--max-new-tokens", "4", "What?")
    assert done.returncode == 0
    assert b"tokens read" in done.stderr
    assert b"tokens read" not in done.stdout


def test_chat_keeps_the_talk_in_the_pot(model: str) -> None:
    done = run(
        "chat",
        "--model",
        model,
        "--capacity",
        "192",
        "--json",
        "--max-new-tokens",
        "40",
        stdin=b"hi\nyou\nwho\n",
    )
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(replies) == 3
    assert replies[-1]["cycles"] > 0
    assert all(reply["fill"] <= 192 for reply in replies)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["ask", "hi"], "nothing to read"),
        (["ask", "-f", "TEXT"], "Missing argument 'question'"),
        (["ask", "-f", "NOWHERE", "hi"], "there is no such file"),
        (["ask", "-f", "EMPTY", "hi"], "has no text in it"),
        (["ask", "-f", "BINARY", "hi"], "binary"),
        (["ask", "-f", "LATIN", "hi"], "not UTF-8"),
        (["ask", "-f", "FOLDER", "hi"], "there are no files in"),
        (["ask", "-f", "PATTERN", "hi"], "no file is called like"),
        (["ask", "-f", "SCAN", "hi"], "has no text in it: it is scanned or drawn"),
        (["ask", "-f", "http://127.0.0.1:9/", "hi"], "private network: give --allow-private if you mean it"),
        (["ask", "-f", "TEXT", ""], "question is empty"),
        (["ask", "-f", "TEXT", "-f", "-", "-f", "-", "hi"], "only once"),
        (["ask", "-f", "TEXT", "--capacity", "2", "hi"], "--capacity is 2"),
        (["ask", "-f", "TEXT", "--capacity", "ten", "hi"], "--capacity"),
        (["ask", "-f", "TEXT", "--keep", "9999", "hi"], "--keep is 9999"),
        (["ask", "-f", "TEXT", "--novelty", "7", "hi"], "--novelty is 7"),
        (["ask", "-f", "TEXT", "--catalyst", "genral", "hi"], "did you mean 'general'"),
        (["ask", "-f", "TEXT", "--format", "poem", "hi"], "--format"),
        (["ask", "-f", "TEXT", "--max-new-tokens", "0", "hi"], "--max-new-tokens is 0"),
        (["ask", "-f", "TEXT", "--temperature", "-1", "hi"], "--temperature is -1"),
        (["ask", "-f", "TEXT", "--device", "abacus", "hi"], "abacus"),
        (["ask", "-f", "TEXT", "--dtype", "int1", "hi"], "int1"),
        (["ask", "-f", "TEXT", "--model", "smolm2", "hi"], "did you mean 'smollm2'"),
        (["ask", "-f", "TEXT", "--model", "FOLDER", "hi"], "config.json"),
        (["ask", "-f", "TEXT", "--bogus", "hi"], "--bogus"),
        (["ask", "-f", "TEXT", "--model", "MODEL", "--capacity", "48", "--keep", "44", "hi"], "too small"),
        (
            [
                "ask",
                "-f",
                "TEXT",
                "--model",
                "MODEL",
                "--capacity",
                "160",
                "--catalyst",
                "general",
                "w " * 99,
            ],
            "too long",
        ),
        (["asc"], "ask"),
        (["eval", "passkey", "--engine", "spark"], "'spark' is not one of 'here', 'ray'"),
        (["models", "pull", "nothing"], "nothing"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(words, says, model, text, tmp_path) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "binary").write_bytes(b"abc\0def")
    (tmp_path / "latin").write_bytes("café".encode("latin1"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "scan").write_bytes(small_documents.pdf([[]], "0 0 9 9 re f"))
    places = {"TEXT": text, "MODEL": model, "NOWHERE": str(tmp_path / "nowhere")}
    places["PATTERN"] = str(tmp_path / "folder" / "*.md")
    places |= {name: str(tmp_path / name.lower()) for name in ("EMPTY", "BINARY", "LATIN", "FOLDER", "SCAN")}
    done = run(*(places.get(word, word) for word in words))
    said = done.stderr.decode()
    assert done.returncode == 2, said
    assert said.startswith("infinipot: ")
    assert said.count("\n") == 1
    assert says in said
    assert not done.stdout


def test_help_is_quick_and_needs_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['infinipot', '--help']\n"
        "from infinipot.cli.main import run\n"
        "try: run()\n"
        "finally: print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr.strip() == b"[]"
    assert b"ask" in done.stdout


def test_ctrl_c_while_reading_is_one_line(model: str) -> None:
    words = ["ask", "-f", "-", "--model", model, "--capacity", "192", "hi"]
    process = subprocess.Popen(
        [*COMMAND, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(b"some words to read " * 5_000)  # more than a pipe holds: it has begun to read
    process.stdin.flush()
    time.sleep(1.0)  # it is now waiting for more text
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.decode().splitlines()[-1] == "infinipot: interrupted"
    assert b"Traceback" not in err
    assert out == b""


def test_ask_follows_a_schema(model: str, text: str, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    wanted = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
    schema.write_text(json.dumps(wanted | {"additionalProperties": False}))
    words = ["ask", "Is it?", "--file", text, "--model", model, "--capacity", "192", "--schema", str(schema)]
    done = run(*words, "--json", "--temperature", "1", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(json.loads(done.stdout)["answer"])["sure"], bool)
    for content, says in (("{", "is not JSON"), ('{"type": "x"}', "cannot be followed"), ("[]", "an object")):
        schema.write_text(content)
        done = run(*words)
        assert (done.returncode, says in done.stderr.decode(), b"Traceback" in done.stderr) == (
            2,
            True,
            False,
        )
    schema.unlink()
    assert b"cannot read" in run(*words).stderr
