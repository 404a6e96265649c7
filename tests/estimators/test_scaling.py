from __future__ import annotations

import numpy as np
import pytest

from gpflow_deep import metrics
from gpflow_deep.estimators.scaling import Scaling


def _data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(3.0, 50.0, size=(30, 4)), rng.normal(-2.0, 7.0, size=(30, 1))


def test_training_data_are_standardised() -> None:
    X, Y = _data()
    scaling = Scaling.fit(X, Y)
    for array in (scaling.inputs(X), scaling.targets(Y)):
        np.testing.assert_allclose(array.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(array.std(axis=0), 1.0)


def test_constant_columns_become_zero() -> None:
    X, Y = _data()
    X[:, 1] = 0.1
    X[:, 2] = 0.0
    standardised = Scaling.fit(X, Y).inputs(X)
    np.testing.assert_allclose(standardised[:, 1:3], 0.0, atol=1e-12)


def test_small_columns_are_not_taken_for_constant() -> None:
    X, Y = _data()
    X[:, 1] *= 1e-9
    np.testing.assert_allclose(Scaling.fit(X, Y).inputs(X).std(axis=0), 1.0)


@pytest.mark.parametrize("exponent", [-600, -400, 400, 600])
def test_columns_far_from_unit_scale_are_standardised_as_others(exponent: int) -> None:
    """Though their squares are not numbers; by a power of two, which must change no bit."""
    X, Y = _data()
    scaling = Scaling.fit(X * 2.0**exponent, Y)
    np.testing.assert_array_equal(scaling.inputs(X * 2.0**exponent), Scaling.fit(X, Y).inputs(X))


@pytest.mark.parametrize("scale", [1e-200, 1e-145, 1e145, 1e200])
def test_targets_whose_variances_are_no_numbers_are_refused(scale: float) -> None:
    X, Y = _data()
    with pytest.raises(ValueError, match="Y: expected targets with standard deviations between"):
        Scaling.fit(X, scale * Y)


def test_densities_in_original_units_lose_the_log_of_the_scale() -> None:
    X, Y = _data()
    scaling = Scaling.fit(X, Y)
    mixture = np.zeros((2, 30, 1)), np.ones((2, 30, 1)), np.log([0.3, 0.7])
    np.testing.assert_allclose(
        metrics.log_density(Y, *scaling.mixture(*mixture)),
        metrics.log_density(scaling.targets(Y), *mixture) - np.log(Y.std()),
    )


@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_values_far_from_zero_that_vary(spread: float) -> None:
    """At 1e9 a thousandth is ten thousand steps of rounding: no constant. The rounding of one is."""
    values = 1e9 + spread * np.linspace(-1.0, 1.0, 50)[:, None]
    scaling = Scaling.fit(values, values)
    np.testing.assert_allclose(scaling.inputs(values).std(axis=0), 1.0)
    constant = np.where(np.arange(50) % 2, 0.3, 0.1 + 0.2)[:, None]
    assert Scaling.fit(constant, constant).X_scale == 1.0
