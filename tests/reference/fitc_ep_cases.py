"""The FITC-EP reference cases as objects; their README has the conventions."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Case", "case_names", "load_case"]

_FILE = Path(__file__).parent / "fitc_ep" / "golden.npz"


@cache
def _arrays() -> dict[str, np.ndarray]:
    with np.load(_FILE) as arrays:
        return dict(arrays)


class Case:
    """One case: `case["F"]` is an array, `case.per_layer("Z")` the list of `l0_Z`, `l1_Z`, ..."""

    def __init__(self, name: str):
        self.name = name
        self.meta: dict[str, Any] = json.loads(str(_arrays()[f"{name}/meta"]))

    def __getitem__(self, key: str) -> np.ndarray:
        return _arrays()[f"{self.name}/{key}"]

    def __contains__(self, key: str) -> bool:
        return f"{self.name}/{key}" in _arrays()

    @property
    def num_layers(self) -> int:
        return len(self.meta["hidden"]) + 1

    def per_layer(self, key: str) -> list[np.ndarray]:
        return [self[f"l{i}_{key}"] for i in range(self.num_layers)]


@cache
def load_case(name: str) -> Case:
    return Case(name)


def case_names(kind: str) -> list[str]:
    names = sorted({key.split("/")[0] for key in _arrays()})
    return [name for name in names if load_case(name).meta["kind"] == kind]
