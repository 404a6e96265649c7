"""The structured deep GPs' reference cases as objects; their README has the conventions."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.brute_force import Layer

__all__ = ["CASE_NAMES", "Case", "load_case"]

_FILE = Path(__file__).parent / "structured" / "golden.npz"


@cache
def _arrays() -> dict[str, np.ndarray]:
    with np.load(_FILE) as arrays:
        return dict(arrays)


CASE_NAMES = [str(name) for name in _arrays()["names"]]


class Case:
    """One case: `case["q_mu"]` is an array, `case.per_layer("Z")` the list of `Z_0`, `Z_1`, ..."""

    def __init__(self, name: str):
        self.name = name
        self.meta: dict[str, Any] = json.loads(str(_arrays()[f"{name}/meta"]))

    def __getitem__(self, key: str) -> np.ndarray:
        return _arrays()[f"{self.name}/{key}"]

    def __contains__(self, key: str) -> bool:
        return f"{self.name}/{key}" in _arrays()

    def per_layer(self, key: str) -> list[np.ndarray]:
        return [self[f"{key}_{i}"] for i in range(self.meta["L"])]

    @property
    def layers(self) -> list[Layer]:
        columns = zip(
            self.per_layer("Z"),
            self["kern_var"],
            self.per_layer("kern_ls"),
            self["white_var"],
            self.per_layer("mf_W"),
            self.per_layer("mf_b"),
            strict=True,
        )
        return [Layer(*column) for column in columns]


@cache
def load_case(name: str) -> Case:
    return Case(name)
