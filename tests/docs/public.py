"""The public names of the package, and what is said of them where they are defined."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import gpflow_deep

_ROOT = Path(gpflow_deep.__file__).parent

#: Rooms whose names users import. The studies and the command line are used as a command.
ROOMS = sorted(
    {*gpflow_deep.__all__, "layers.bayesian", "presets.image_networks"}
    - {"__version__", "experiments"}
)


class Example(NamedTuple):
    """A docstring with examples in it."""

    text: str
    path: Path
    line: int


def public_names() -> list[str]:
    """As ``room.name``."""
    names = []
    for room in ROOMS:
        path = _folder(room) / "__init__.py"
        tree = _parse(path if path.exists() else _folder(room).with_suffix(".py"))
        names += [f"{room}.{name}" for name in _assigned(tree, "__all__")]
    # What a room and the room within it both have is the outer one's.
    return [name for name in names if re.sub(r"\.\w+\.", ".", name) not in set(names) - {name}]


def examples(public_name: str) -> list[Example]:
    """Of a name and, where it is a class, of what is in it."""
    room, _, name = public_name.rpartition(".")
    found = []
    for path in sorted(_folder(room).rglob("*.py")) or [_folder(room).with_suffix(".py")]:
        for docstring in _docstrings(_parse(path), name):
            if ">>>" in docstring.value:
                found.append(Example(docstring.value, path, docstring.lineno))
    return found


def _folder(room: str) -> Path:
    return _ROOT.joinpath(*room.split("."))


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _assigned(tree: ast.Module, name: str) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return list(ast.literal_eval(node.value))
    return []


def _docstrings(tree: ast.Module, name: str) -> list[ast.Constant]:
    """Of a definition and all in it; or the string that stands behind an assignment."""
    strings = []
    for node, following in zip(tree.body, [*tree.body[1:], None]):
        if getattr(node, "name", None) == name:
            strings += [
                inner.body[0]
                for inner in ast.walk(node)
                if isinstance(inner, (ast.ClassDef, ast.FunctionDef))
            ]
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            strings.append(following)
    return [
        string.value
        for string in strings
        if isinstance(string, ast.Expr) and isinstance(string.value, ast.Constant)
    ]
