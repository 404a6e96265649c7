"""What the reference cases of several families share: arrays by name, and a description."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["ReferenceCase", "load_arrays"]


@cache
def load_arrays(family: str) -> dict[str, np.ndarray]:
    """All arrays of a family's file, by `case/array`."""
    with np.load(Path(__file__).parent / family / "golden.npz") as arrays:
        return dict(arrays)


class ReferenceCase:
    """One case: `case["F"]` is an array, `case.meta` its description."""

    family: str

    def __init__(self, name: str):
        self.name = name
        self.meta: dict[str, Any] = json.loads(str(load_arrays(self.family)[f"{name}/meta"]))

    def __getitem__(self, key: str) -> np.ndarray:
        return load_arrays(self.family)[f"{self.name}/{key}"]

    def __contains__(self, key: str) -> bool:
        return f"{self.name}/{key}" in load_arrays(self.family)
