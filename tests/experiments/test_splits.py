from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpflow_deep.experiments.datasets import Dataset
from gpflow_deep.experiments.splits import STUDIES, extrapolation_split, interpolation_split


def _dataset(num_data: int = 50, seed: int = 0, masks: np.ndarray | None = None) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_data, 3)) * [1.0, 100.0, 0.0] + [5.0, -3.0, 0.1]
    return Dataset("toy", X, rng.normal(size=(num_data, 1)), masks)


@settings(max_examples=30, deadline=None)
@given(num_data=st.integers(2, 200), index=st.integers(0, 1000), study=st.sampled_from([*STUDIES]))
def test_every_point_is_used_once(num_data: int, index: int, study: str) -> None:
    split = STUDIES[study](_dataset(num_data), index)
    rows = np.sort(np.concatenate([split.train, split.test]))
    np.testing.assert_array_equal(rows, np.arange(num_data))
    assert len(split.train) > 0 and len(split.test) > 0


def test_published_splits_are_used() -> None:
    masks = np.zeros((2, 50), dtype=bool)
    masks[0, :5] = masks[1, 10:20] = True
    split = interpolation_split(_dataset(masks=masks), 1)
    np.testing.assert_array_equal(split.test, np.arange(10, 20))
    with pytest.raises(ValueError, match="2 published splits.*got 2"):
        interpolation_split(_dataset(masks=masks), 2)


@pytest.mark.parametrize("study, share", [("interpolation", 0.1), ("extrapolation", 0.5)])
def test_sizes_and_repeatability(study: str, share: float) -> None:
    first, again, other = (STUDIES[study](_dataset(), index) for index in (3, 3, 4))
    assert len(first.test) == share * 50
    np.testing.assert_array_equal(first.test, again.test)
    assert not np.array_equal(first.test, other.test)


def test_extrapolation_halves_are_apart_along_a_line_of_standardised_inputs() -> None:
    dataset = _dataset(400)
    split = extrapolation_split(dataset, 0)
    standardised = (dataset.X - dataset.X.mean(0)) / [*dataset.X.std(0)[:2], 1.0]
    projection = standardised @ np.random.default_rng(0).normal(size=3)
    assert projection[split.train].max() <= projection[split.test].min()


@pytest.mark.parametrize("study", [*STUDIES])
def test_bad_arguments(study: str) -> None:
    with pytest.raises(ValueError, match="index: .*got -1"):
        STUDIES[study](_dataset(), -1)
    with pytest.raises(ValueError, match="dataset: toy has 1 points"):
        STUDIES[study](_dataset(1), 0)
