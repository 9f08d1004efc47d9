"""The documentation: it builds without a warning, loads nothing from elsewhere, and names only what exists.

Its code is run by `tests/e2e/test_docs.py`. Tables of options are written anew with INFINIPOT_WRITE_DOCS=1.
"""

from __future__ import annotations

import html
import inspect
import os
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import infinipot
from doc_pages import (
    CODE,
    DOCS,
    PLAIN,
    REASONS,
    ROOT,
    Block,
    blocks,
    commands,
    every_command,
    found,
    pages,
    prose,
    with_tables,
)
from infinipot.cli.expand import options_of
from infinipot.recipes.presets import presets

OURS = sorted(DOCS.glob("*.md"))
EVERY = [block for page in pages() for block in blocks(page)]
SHELL = [block for block in EVERY if block.language == "bash"]
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}
EXAMPLE = "every-nth"  # the policy that a page tells how to write


class Loaded(HTMLParser):
    """What a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.classes |= set((given.get("class") or "").split())
        if (address := given.get(LOADS.get(tag, ""))) and given.get("rel") not in (
            "canonical",
            "next",
            "prev",
        ):
            self.addresses.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_is_whole(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix(".html")
        built = site / (name.with_name("index.html") if name.stem == "README" else name)
        assert built.is_file(), f"{page} was not built"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        seen = Loaded()
        seen.feed(page.read_text("utf-8"))
        away = [address for address in seen.addresses if re.match(r"[a-z]+:|//", address)]
        assert [address for address in away if not address.startswith("data:")] == [], page
        assert "mermaid" not in seen.classes, f"{page}: the theme would fetch mermaid for it"
    for style in site.rglob("*.css"):
        fetched = re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s]+)", style.read_text("utf-8"))
        assert [one for one in fetched if re.match(r"(?!data:)[a-z]+:|//", one)] == [], style


def test_the_api_page_has_every_public_name(site: Path) -> None:
    page = (DOCS / "api.md").read_text("utf-8")
    listed = {line.split(".")[-1] for line in page.splitlines() if line.startswith("::: ")}
    assert sorted({*infinipot.__all__} - listed - {"InfiniPotError"}) == []
    built = (site / "api.html").read_text("utf-8")
    for documented in (infinipot.Reader, infinipot.InfiniPotError):
        assert html.escape(inspect.getdoc(documented).splitlines()[0]) in built


@pytest.mark.parametrize("block", EVERY, ids=lambda block: block.where)
def test_a_block_is_run_or_says_why_not(block: Block) -> None:
    assert block.language in CODE | PLAIN, f"{block.where}: name it bash or python, or one of {sorted(PLAIN)}"
    if block.reason is not None:
        assert block.reason.startswith(REASONS), f"{block.where}: '{block.reason}' is none of {REASONS}"
    if block.language in ("", "text"):
        assert not re.search(r"^(\$ |infinipot |import |curl )", block.code, re.MULTILINE), block.where


def test_no_page_outside_the_site_has_code_that_nobody_runs() -> None:
    """Those are read on GitHub; README's Python is run by tests/e2e/test_smollm2.py."""
    for block in EVERY:
        if not block.page.startswith("docs/") or block.page.count("/") > 1:
            python_of_readme = (block.page, block.language) == ("README.md", "python")
            assert python_of_readme or not block.runs, f"{block.where}: say `not run: ...` above it"


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.where)
def test_commands_are_ones_that_the_program_takes(block: Block) -> None:
    for words in commands(block.code):
        command, rest = found(words)
        if not hasattr(command, "commands"):
            context = command.make_context(command.name, list(rest))
            _check_recipes(context.params.get("recipe"), block)


def _check_recipes(named: Any, block: Block) -> None:
    for name in (named or "").split(","):
        known = {*presets(), EXAMPLE, "paper", ""}
        assert name.partition(":")[0] in known, f"{block.where}: there is no recipe '{name}'"


def test_options_in_the_prose_exist() -> None:
    known = {word for one in every_command().values() for option in one.params for word in option.opts}
    known |= {
        word for one in every_command().values() for option in one.params for word in option.secondary_opts
    }
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *OURS]:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", re.sub(r"<!--|-->|-{3,}", "", prose(page))))
        assert sorted(named - known - {"--help"}) == [], page


def test_recipes_in_the_prose_exist() -> None:
    for page in [ROOT / "README.md", *OURS]:
        text = page.read_text("utf-8")
        named = re.findall(
            r"(?:--recipe |recipe=[\"']?|Recipe\.named\([\"'])([a-z][\w:-]*(?:,[a-z][\w:-]*)*)(?![\w=])", text
        )
        names = {name.partition(":")[0] for group in named for name in group.split(",") if name}
        assert sorted(names - {*presets(), EXAMPLE, "paper"}) == [], page


@pytest.mark.parametrize("page", OURS, ids=lambda page: page.name)
def test_tables_are_made_from_the_program(page: Path) -> None:
    text = page.read_text("utf-8")
    wanted = with_tables(text)
    if os.environ.get("INFINIPOT_WRITE_DOCS"):
        page.write_text(wanted, "utf-8")
        return
    assert text == wanted, "run: INFINIPOT_WRITE_DOCS=1 python -m pytest tests/unit/test_docs.py"


def test_variables_extras_and_names_exist() -> None:
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    given = {option.in_environment for one in every_command().values() for option in options_of(one)}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in [ROOT / "README.md", *OURS]:
        text = page.read_text("utf-8")
        for variable in re.findall(r"INFINIPOT_[A-Z0-9_]+", text):
            assert variable in given or f'"{variable}"' in sources, f"{page}: {variable}"
        for listed in re.findall(r"(?:\.|infinipot)\[([\w,-]+)\]'", text):
            assert sorted({*listed.split(",")} - {*extras}) == [], page
        for name in re.findall(r"(?:`|from |::: )(infinipot\.\w+(?:\.\w+)*)", text):
            assert resolve_name(name), page


def test_routes_and_metrics_exist() -> None:
    from prometheus_client import generate_latest

    from infinipot.server.http.app import ROUTERS
    from infinipot.server.http.metrics import GAUGES, Metrics

    routes = {route.path.replace(":path", "") for router in ROUTERS for route in router.routes}
    metrics = generate_latest(Metrics(lambda: dict.fromkeys(GAUGES, 0)).registry).decode()
    for page in OURS:
        text = prose(page)
        for route in re.findall(r"`(?:GET |POST |PUT |DELETE )?(/(?:v1/)?[a-z][\w/{}.-]*)", text):
            assert re.sub(r"NAME", "{name}", route) in {*routes, "/openapi.json"}, f"{page}: {route}"
        for metric in re.findall(r"`(infinipot_[a-z_]+)`", text):
            assert re.search(rf"^# TYPE {metric} ", metrics, re.MULTILINE), f"{page}: {metric}"


def test_contributing_names_every_layer() -> None:
    (told,) = re.findall(
        r"## Where things are\n(.*?)\n## ", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.S
    )
    rooms = {path.name.removesuffix(".py") for path in (ROOT / "src" / "infinipot").iterdir()}
    rooms -= {"__init__", "__pycache__", "py.typed"}
    assert sorted(room for room in rooms if not re.search(rf"\b{room}\b", told)) == []


def test_every_raw_result_is_explained() -> None:
    told = (DOCS / "results" / "README.md").read_text("utf-8") + (DOCS / "results.md").read_text("utf-8")
    for path in (DOCS / "results").iterdir():
        assert path.name in told or path.name == "README.md", f"docs/results/README.md lacks {path.name}"
