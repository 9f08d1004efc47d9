"""The house itself: no poking at another object's state, no long files, no flags in messages, sorted exports.

Numbers in capitals may only fall.
"""

from __future__ import annotations

import re
import tomllib

import infinipot
from doc_pages import DOCS, every_command
from house.sources import ROOT, files, flags_in_messages, private_names, raw_state

PRIVATE_NAMES, RAW_STATE, FLAGS = 0, 0, 0
LONGEST_FILE, ALL_LINES = 299, 31_163

LIBRARIES = {  # private names of other people's libraries, each with the reason that no public one does
    r"torch\.ops\.aten\._scaled_dot_product_\w+": "returns the log-sum-exp beside the output",
    r"torch\.ops\.mkldnn\._\w+": "oneDNN's own weight layout has no public name",
    r"torch\.cpu\._is_\w+_supported": "what a processor can do has no public name",
    r"torch\._dynamo(\.\w+)*": "the public torch.compiler has neither reset of limits nor their sizes",
    r"torch\._scaled_mm": "products of 8-bit floats with scales have no public name yet",
    r"torch\._foreach_add_": "one addition to many tensors has no public name",
    r"torch\._int_mm": "products of 8-bit whole numbers have no public name",
    r"\w+\._forward_(pre_)?hooks": "torch has no public question whether a module has hooks",
}


def test_nothing_touches_another_object_s_private_names() -> None:
    found = [(name, said) for name, said in private_names() if not _of_a_library(said)]
    assert len(found) <= PRIVATE_NAMES, found


def _of_a_library(expression: str) -> bool:
    return any(re.fullmatch(pattern, expression) for pattern in LIBRARIES)


def test_every_exception_for_a_library_is_used() -> None:
    said = {expression for _, expression in private_names()}
    assert [one for one in LIBRARIES if not any(re.fullmatch(one, name) for name in said)] == []


def test_nothing_reaches_for_the_dict_of_an_object() -> None:
    assert len(found := list(raw_state())) <= RAW_STATE, found


def test_only_front_ends_spell_flags() -> None:
    options = [option for command in every_command().values() for option in command.params]
    ours = {word for option in options for word in (*option.opts, *option.secondary_opts)}
    found = [(name, flag) for name, flag in flags_in_messages() if flag in ours]
    assert len(found) <= FLAGS, found


def test_no_file_is_long_and_all_are_few() -> None:
    lines = {name: len(text.splitlines()) for name, text in files().items()}
    longest = max(lines, key=lambda name: lines[name])
    assert lines[longest] <= LONGEST_FILE, longest
    assert sum(lines.values()) <= ALL_LINES


def test_what_the_package_exports_is_sorted_there_and_documented() -> None:
    names = infinipot.__all__
    assert list(names) == sorted(names)
    assert [name for name in names if not hasattr(infinipot, name)] == []
    assert not hasattr(infinipot, "nothing")
    page = (DOCS / "api.md").read_text("utf-8")
    documented = {line.split(".")[-1] for line in page.splitlines() if line.startswith("::: ")}
    assert sorted({*names} - documented - {"InfiniPotError"}) == []


def test_the_version_has_one_source() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert told["project"]["dynamic"] == ["version"]
    assert "version" not in told["project"]
    assert told["tool"]["hatch"]["version"]["path"] == "src/infinipot/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", infinipot.__version__)


def test_the_transformers_contract_is_over_the_whole_package() -> None:
    """Every room but hf/ and every file at the root; import-linter itself runs in `make lint`."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (contract,) = [one for one in contracts if one.get("forbidden_modules") == ["transformers"]]
    rooms = {name.split("/")[0].removesuffix(".py") for name in files()} - {"hf", "__init__"}
    assert {f"infinipot.{room}" for room in rooms} <= {*contract["source_modules"]}
