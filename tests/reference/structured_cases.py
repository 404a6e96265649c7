"""The structured deep GPs' reference cases as objects; their README has the conventions."""

from __future__ import annotations

from functools import cache

import numpy as np

from tests.brute_force import Layer
from tests.reference.cases import ReferenceCase, load_arrays

__all__ = ["CASE_NAMES", "Case", "load_case"]

CASE_NAMES = [str(name) for name in load_arrays("structured")["names"]]


class Case(ReferenceCase):
    """One case: `case["q_mu"]` is an array, `case.per_layer("Z")` the list of `Z_0`, `Z_1`, ..."""

    family = "structured"

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
