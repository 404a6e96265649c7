from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from gpflow_deep.estimators.stacking import stacking_weights

_DENSITIES = arrays(np.float64, (30, 3), elements=st.floats(-5.0, 2.0))


@given(log_densities=_DENSITIES)
def test_the_mixture_is_as_good_as_the_best_member(log_densities: np.ndarray) -> None:
    weights = stacking_weights(log_densities)
    assert (weights >= 0.0).all()
    np.testing.assert_allclose(weights.sum(), 1.0)
    mixed = logsumexp(log_densities, axis=1, b=weights).sum()
    # The row that favours nobody, and the members that are too small to keep, may cost a little.
    assert mixed > log_densities.sum(axis=0).max() - 2.5


def test_weights_are_those_of_an_optimiser() -> None:
    log_densities = np.random.default_rng(0).normal(size=(2000, 3)) + [0.0, 0.3, -0.2]

    def loss(free: np.ndarray) -> float:
        return -logsumexp(log_densities, axis=1, b=softmax(free)).mean()

    expected = softmax(minimize(loss, np.zeros(3), tol=1e-12).x)
    np.testing.assert_allclose(stacking_weights(log_densities), expected, atol=2e-3)


def test_rows_count_as_their_weights_say() -> None:
    rng = np.random.default_rng(1)
    log_densities, times = rng.normal(size=(20, 2)), rng.integers(0, 4, 20)
    np.testing.assert_allclose(
        stacking_weights(log_densities, times.astype(float)),
        stacking_weights(np.repeat(log_densities, times, axis=0)),
    )


def test_a_member_that_cannot_explain_the_rows_is_left_out() -> None:
    log_densities = np.tile([0.0, -np.inf, np.nan], (50, 1))
    np.testing.assert_array_equal(stacking_weights(log_densities), [1.0, 0.0, 0.0])
