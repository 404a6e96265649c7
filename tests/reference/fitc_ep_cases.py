"""The FITC-EP reference cases as objects; their README has the conventions."""

from __future__ import annotations

from functools import cache

import numpy as np

from tests.reference.cases import ReferenceCase, load_arrays

__all__ = ["Case", "case_names", "load_case"]


class Case(ReferenceCase):
    """One case: `case["F"]` is an array, `case.per_layer("Z")` the list of `l0_Z`, `l1_Z`, ..."""

    family = "fitc_ep"

    @property
    def num_layers(self) -> int:
        return len(self.meta["hidden"]) + 1

    def per_layer(self, key: str) -> list[np.ndarray]:
        return [self[f"l{i}_{key}"] for i in range(self.num_layers)]


@cache
def load_case(name: str) -> Case:
    return Case(name)


def case_names(kind: str) -> list[str]:
    names = sorted({key.split("/")[0] for key in load_arrays("fitc_ep")})
    return [name for name in names if load_case(name).meta["kind"] == kind]
