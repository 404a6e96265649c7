"""Columns many orders of magnitude from one are warned of once, by their numbers."""

from __future__ import annotations

import warnings
from typing import Any

import gpflow
import numpy as np
import pytest

from tests.training.models import Line, make_data, make_svgp, quiet_fit


@pytest.mark.parametrize(
    "change,named",
    [
        (lambda X, Y: (X * [1e5, 1.0], Y), r"column 0 of X of data \(mean .*, standard .*\): many"),
        (lambda X, Y: (X * [1.0, 1e-6], Y), "column 1 of X of data"),
        (lambda X, Y: (X + [1.7e9, 0.0], Y), r"column 0 of X of data \(mean 1.7e\+09"),
        (lambda X, Y: (X * 1e8, Y), "column 0 of X of data .*; column 1 of X of data"),
        (lambda X, Y: (X * [0.0, 1.0] - [5e3, 0.0], Y), r"column 0 of X .*deviation 0\): many"),
    ],
)
def test_unscaled_columns_are_named_in_one_warning(change: Any, named: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quiet_fit(Line(), change(*make_data()), steps=1, learning_rate=1e-9)
    (warning,) = caught
    with pytest.raises(UserWarning, match=f"{named}.*Scale each column"):
        raise warning.message
    assert warning.filename.endswith("models.py")  # where `fit` was called


def test_targets_count_where_they_can_be_scaled() -> None:
    X, Y = make_data()
    with pytest.warns(UserWarning, match="^column 0 of Y of data"):
        quiet_fit(make_svgp(), (X, 1e4 * Y), steps=1)
    counts = np.round(1e5 * np.abs(Y))
    quiet_fit(make_svgp(likelihood=gpflow.likelihoods.Poisson()), (X, counts), steps=1)


def test_scaled_data_pass() -> None:
    X, Y = make_data()
    X[:, 0] = 0.1  # a constant column, and ordinary units
    quiet_fit(Line(), (X * [1.0, 50.0] + [0.0, 100.0], Y), steps=1)
    quiet_fit(Line(), (X[:1] + [3.0, 0.0], Y[:1] + 2.0), steps=1)  # one row alone
