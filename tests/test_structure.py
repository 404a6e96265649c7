"""The house: imports between its rooms go one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gpflow_deep

_ROOT = Path(gpflow_deep.__file__).parent

#: From the ground up: a room imports from those before it, never from those after it.
_ROOMS = (
    "numerics",
    "likelihoods",
    "validation",
    "distributions",
    "kernels",
    "psi_statistics",
    "initialisation",
    "layers",
    "posteriors",
    "models",
    "metrics",
    "plotting",
    "optimizers",
    "training",
    "presets",
    "estimators",
    "experiments",
    "command_line",
)


def _imported(path: Path) -> set[str]:
    """The rooms that a file of the package imports from."""
    package = ["gpflow_deep", *path.relative_to(_ROOT).parts[:-1]]
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "gpflow_deep" and len(part) > 1} & set(_ROOMS)


@pytest.mark.parametrize(
    "path", sorted(_ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(_ROOT))
)
def test_imports_go_one_way(path: Path) -> None:
    room = path.relative_to(_ROOT).with_suffix("").parts[0]
    if room == "__init__":
        return
    assert room in _ROOMS, "a room that the list above does not place"
    later = _imported(path) & set(_ROOMS[_ROOMS.index(room) + 1 :])
    assert not later
