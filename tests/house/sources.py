"""The package's own source as data: files, lines, private names touched from outside, words of messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "infinipot"
OWN = frozenset({"self", "cls"})
_PRIVATE = re.compile(r"_[a-z]\w*|__(?!\w+__$)\w+")
_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]+")
FRONT_ENDS = ("cli/", "server/http/")


@cache
def files() -> dict[str, str]:
    """Every Python file of the package, by its path in it."""
    return {str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(name: str) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(files()[name], name)


def private_names() -> Iterator[tuple[str, str]]:
    """Where a file touches a private name of something that is not `self` or `cls`: (file, expression)."""
    for name in files():
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Attribute) and _PRIVATE.fullmatch(node.attr) and not _own(node.value):
                yield name, ast.unparse(node)
            elif isinstance(node, ast.ImportFrom):
                yield from ((name, f"{node.module}.{one.name}") for one in node.names if _private_import(one))


def _own(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in OWN


def _private_import(imported: ast.alias) -> bool:
    return bool(_PRIVATE.fullmatch(imported.name))


def raw_state() -> Iterator[tuple[str, int]]:
    """Where a file reaches for an object's `__dict__`, by that name or by `vars(...)`: (file, line)."""
    for name in files():
        for node in ast.walk(tree(name)):
            match node:
                case ast.Attribute(attr="__dict__") | ast.Call(func=ast.Name(id="vars")):
                    yield name, node.lineno


def flags_in_messages() -> Iterator[tuple[str, str]]:
    """Strings below the front ends that spell a command's flag: (file, flag). Docstrings may."""
    for name in files():
        if name.startswith(FRONT_ENDS):
            continue
        documented = _docstrings(tree(name))
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documented:
                yield from ((name, flag) for flag in _FLAG.findall(node.value))


def _docstrings(module: ast.Module) -> set[ast.AST]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(module) if isinstance(node, kinds)]
    return {body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)}
