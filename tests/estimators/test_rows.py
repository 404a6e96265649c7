from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpflow_deep.estimators.limits import Limits, limits_of
from gpflow_deep.estimators.rows import Rows, distinct_rows, folds, hold_out


def test_rows_are_the_same_in_any_order_and_as_often_as_they_count() -> None:
    rng = np.random.default_rng(0)
    X, Y, times = (
        rng.integers(0, 3, (20, 2)) * 1.0,
        rng.integers(0, 2, (20, 1)) * 1.0,
        rng.integers(0, 3, 20),
    )
    rows = distinct_rows(X, Y, times.astype(float))
    order = rng.permutation(np.repeat(np.arange(20), times))
    for a, b in zip(rows, distinct_rows(X[order], Y[order], None), strict=True):
        np.testing.assert_array_equal(a, b)
    assert rows.weights.sum() == times.sum() and len(np.unique(rows.X, axis=0)) <= len(rows.X)
    again = rows.repeated("dspp")
    assert len(again.X) == times.sum() and (again.weights == 1.0).all()
    with pytest.raises(ValueError, match="sample_weight: expected whole numbers for 'dspp'"):
        distinct_rows(X, Y, times + 0.5).repeated("dspp")


def test_held_out_rows_are_no_others_and_every_class_is_trained_on() -> None:
    X, Y = np.arange(30.0)[:, None], np.array([0.0] * 29 + [1.0])[:, None]
    rows = distinct_rows(X, Y, None)
    for seed in range(5):
        train, held_out = hold_out(rows, 0.9, 100, seed, classes=True)
        assert sorted([*train.X[:, 0], *held_out.X[:, 0]]) == list(range(30))
        assert set(train.Y[:, 0]) == {0.0, 1.0} and len(held_out.X) == 27
    assert len(hold_out(rows, 0.9, 5, 0, classes=False)[1].X) == 5


def test_rounding_variance() -> None:
    """Of whole numbers in other units; there is none of a constant or where few numbers come again."""
    X, rng = np.zeros((1000, 1)), np.random.default_rng(0)
    whole, real = rng.integers(0, 9, (1000, 1)) * 1.0, rng.normal(size=(1000, 1))
    for Y, expected in (
        (0.5 * whole - 3.0, 0.25 / 12.0),
        (np.hstack([2.0 * whole, whole]), 1.0 / 12.0),
        (real, 0.0),
        (np.hstack([real, whole]), 0.0),
        (np.round(real, 3), 0.0),
        (np.ones((1000, 1)), 0.0),
    ):
        np.testing.assert_allclose(Rows(X, Y, X[:, 0]).rounding_variance(), expected)
    errors = np.round(10.0 * real) - 10.0 * real
    variance = Rows(X, np.round(10.0 * real), X[:, 0]).rounding_variance()
    np.testing.assert_allclose(errors.var(), variance, rtol=0.1)


def test_observations_of_one_row_are_held_out_one_by_one() -> None:
    """But where few rows would be repeated by nature: most rows of weight three are something else."""
    weights = np.where(np.arange(40) < 20, 11.0, 1.0)
    rows = Rows(np.arange(40.0)[:, None], np.zeros((40, 1)), weights)
    train, held_out = hold_out(rows, 0.5, 200, 0, classes=False)
    assert train.weights.sum() == held_out.weights.sum() == 120
    assert len(np.intersect1d(train.X, held_out.X)) > 10
    totals = np.zeros(40)
    for part in (train, held_out):
        totals[part.X[:, 0].astype(int)] += part.weights
    np.testing.assert_array_equal(totals, rows.weights)
    # Weights that are no counts, and counts that are of most rows or too large, stay whole.
    most = np.where(np.arange(40) < 21, 3.0, 1.0)
    for weights in (np.full(40, 0.5), np.full(40, 1e9), np.full(40, 3.0), most):
        train, held_out = hold_out(rows._replace(weights=weights), 0.5, 100, 0, classes=False)
        assert (
            len(train.X) == len(held_out.X) == 20 and not np.intersect1d(train.X, held_out.X).size
        )


@pytest.mark.parametrize("share", [0.05, 0.1])
def test_numbers_with_digits_hardly_come_again(share: float) -> None:
    """A tenth of the rows twice are weights."""
    Y = np.random.default_rng(0).normal(size=(200, 1))
    weights = np.where(np.arange(200) < 200 * share, 2.0, 1.0)
    rows = Rows(np.arange(200.0)[:, None], Y, weights)
    train, held_out = hold_out(rows, 0.5, 200, 0, classes=False)
    assert bool(np.intersect1d(train.X, held_out.X).size) == (share == 0.05)


def test_inputs_of_few_values_come_again() -> None:
    """A table of categories: every row is there many times, and every input has both classes."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(2000, 3)).astype(float)
    Y = (rng.random((2000, 1)) < 0.2 + 0.3 * (X[:, :1] > 0)).astype(float)
    rows = distinct_rows(X, Y, None)
    assert len(rows.X) == 54 and (rows.weights > 1).all()
    train, held_out = hold_out(rows, 0.2, 1000, 0, classes=True)
    assert held_out.weights.sum() == 400
    assert len(train.X) == 54 and len(held_out.X) > 50


def test_folds_are_of_equal_size() -> None:
    rows = distinct_rows(np.arange(21.0)[:, None], np.arange(21.0)[:, None], None)
    assert sorted(np.bincount(folds(rows, 4, 0))) == [5, 5, 5, 6]
    assert not np.array_equal(folds(rows, 4, 0), folds(rows, 4, 1))


def test_one_wild_cell_is_beyond_the_limits() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)) * [1.0, 1e-8, 1e8]
    limits = Limits.fit(X)
    assert not limits.beyond(X).any()
    X[7, 1] = 1e12
    np.testing.assert_array_equal(np.argwhere(limits.beyond(X)), [[7, 1]])
    np.testing.assert_array_equal(np.delete(limits.clip(X), 7, axis=0), np.delete(X, 7, axis=0))
    assert abs(limits.clip(X)[7, 1]) < 1e-5


@pytest.mark.parametrize("deviation", [2.0, 2.5, 3.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_long_tails_are_no_slips(deviation: float, sign: float) -> None:
    """Log-normal values, the largest of which are a hundred standard deviations out; a slip among them is."""
    for seed in range(20):
        X = sign * np.exp(deviation * np.random.default_rng(seed).normal(size=(400, 1)))
        away = np.abs(X - np.median(X)) / np.diff(np.quantile(X, [0.25, 0.75]))
        assert away.max() > 30.0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            limits = limits_of(X, "X")
        assert np.isinf(limits.low) and np.isinf(limits.high)
        largest = int(np.argmax(np.abs(X)))
        X[7] = 1e3 * X[largest]
        with pytest.warns(UserWarning, match="1 of 400 values .* apart from the others"):
            limits = limits_of(X, "X")
        np.testing.assert_array_equal(np.flatnonzero(limits.beyond(X)), [7])
        if largest != 7:
            assert 1.0 <= limits.clip(X)[7, 0] / X[largest, 0] < 3.0


def test_a_column_of_one_value_and_few_others_has_no_limits() -> None:
    X = np.zeros((50, 1))
    X[:3] = 1.0
    assert not Limits.fit(X).beyond(1e9 * X).any()


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(1, 9)), min_size=1, max_size=30))
def test_limits_of_a_row_of_weight_two_are_those_of_the_row_twice(
    rows: list[tuple[float, int]],
) -> None:
    X, times = np.array([[value] for value, _ in rows]), np.array([n for _, n in rows])
    weighted, repeated = Limits.fit(X, 1.0 * times), Limits.fit(np.repeat(X, times, axis=0))
    np.testing.assert_array_equal(weighted.low, repeated.low)
    np.testing.assert_array_equal(weighted.high, repeated.high)
    mirrored = Limits.fit(-X, 1.0 * times)
    np.testing.assert_allclose(mirrored.low, -weighted.high, rtol=1e-12)


@pytest.mark.parametrize(("far", "kept"), [(1, False), (4, False), (5, True), (40, True)])
def test_what_is_far_and_not_rare_is_no_slip(far: int, kept: bool) -> None:
    """A sensor that is off, but for noise, most of the time."""
    X = 1e-3 * np.random.default_rng(0).normal(size=(200, 1))
    X[:far] += 1.0 + np.arange(far)[:, None]
    with pytest.warns(
        UserWarning, match=f"X, column 0: {far} of 200.*slips" if kept else "nearest"
    ):
        limits = limits_of(X, "X")
    np.testing.assert_array_equal(limits.beyond(X)[:, 0], (np.arange(200) < far) & (not kept))
    weights = np.where(np.arange(200) < far, 1e-3, 1.0)
    with pytest.warns(UserWarning, match="nearest"):
        assert limits_of(X, "X", weights=weights).beyond(X).sum() == far


def test_weights_are_counts_or_not() -> None:
    X = np.arange(40.0)[:, None]
    half = np.where(np.arange(40) < 20, 1.0, 0.0)
    few, many = (Rows(X, X // 10, 1.0 + often * half) for often in (1.0, 1e5))
    assert few.are_few_observations() and not many.are_few_observations()
    assert not Rows(X, X, 1.0 + half).are_few_observations()  # of numbers with digits
    for weight in (1e-10, 0.3, 1.5):
        none = Rows(X, X, np.full(40, weight))
        assert not none.are_few_observations()
        train, held_out = hold_out(none, 0.25, 100, 0, classes=False)
        assert len(train.X) == 30 and (held_out.weights == weight).all()
    with pytest.raises(ValueError, match="sample_weight: expected at most 1000000 observations"):
        Rows(X, X, np.full(40, 1e5)).repeated("dspp")


def test_rounding_variance_of_numbers_that_arithmetic_made() -> None:
    """0.3 is not 3 * 0.1."""
    Y = np.tile(np.concatenate([np.arange(10) * 0.1, np.arange(10) / 10]), 10)[:, None]
    assert len(np.unique(Y)) > 10
    np.testing.assert_allclose(Rows(Y, Y, Y[:, 0]).rounding_variance(), 0.01 / 12.0)


def test_parts_have_as_many_rows_of_each_class() -> None:
    Y = np.repeat([0.0, 1.0, 2.0], [9, 6, 1])[:, None]
    rows = Rows(np.arange(16.0)[:, None], Y, np.ones(16))
    for seed in range(5):
        part = folds(rows, 4, seed, classes=True)
        assert (np.bincount(part) == 4).all()
        for code in range(3):
            counts = np.bincount(part[Y[:, 0] == code], minlength=4)
            assert counts.max() - counts.min() <= 1
    assert not np.array_equal(part, folds(rows, 4, 0, classes=True))
