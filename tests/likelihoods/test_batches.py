"""Draws of functions for one batch: as each by itself, and functions of the inputs asked once for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Gamma,
    Gaussian,
    GaussianMC,
    HeteroskedasticTFPConditional,
    Likelihood,
    MultiClass,
    Ordinal,
    Poisson,
    ScalarLikelihood,
    Softmax,
    StudentT,
    SwitchedLikelihood,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from gpflow_deep.estimators.weighted import WeightedLikelihood
from gpflow_deep.likelihoods import (
    MissingOutputs,
    log_prob,
    monte_carlo,
    predict_log_density,
    predict_mean_and_var,
    variational_expectations,
)

P = 2


class Growing(gpflow.functions.Function):
    """A function of one input that keeps in mind with how many rows it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def __call__(self, X: Any) -> tf.Tensor:
        self.rows.append(X.shape[0])
        return 0.5 + 0.1 * tf.square(X)


class OfMatrices(ScalarLikelihood):
    """A user's, whose methods take nothing but matrices."""

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> tf.Tensor:
        return -tf.square(Y - F)

    def _variational_expectations(self, X: Any, Fmu: Any, Fvar: Any, Y: Any) -> tf.Tensor:
        return tf.reduce_sum(-tf.square(Y - Fmu) - Fvar, axis=1) + X[:, 0]

    def _conditional_mean(self, X: Any, F: Any) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: Any, F: Any) -> tf.Tensor:
        return tf.ones_like(F)


class OfInputs(ScalarLikelihood):
    """A user's, with a function of the inputs, by the shapes that GPflow says."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Growing()

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> tf.Tensor:
        return gpflow.logdensities.laplace(Y, F, self.scale(X))

    def _conditional_mean(self, X: Any, F: Any) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: Any, F: Any) -> tf.Tensor:
        return tf.zeros_like(F) + 2.0 * tf.square(self.scale(X))


def _real(rng: np.random.Generator, N: int) -> np.ndarray:
    return rng.normal(size=[N, P])


def _positive(rng: np.random.Generator, N: int) -> np.ndarray:
    return rng.uniform(0.1, 0.9, size=[N, P])


def _counts(rng: np.random.Generator, N: int) -> np.ndarray:
    return rng.integers(0, 2, size=[N, P]).astype(float)


def _missing(rng: np.random.Generator, N: int) -> np.ndarray:
    return np.where(rng.random([N, P]) < 0.3, np.nan, _real(rng, N))


def _indexed(rng: np.random.Generator, N: int) -> np.ndarray:
    return np.c_[_positive(rng, N), rng.integers(0, 2, size=N)]


def _classes(rng: np.random.Generator, N: int) -> np.ndarray:
    return rng.integers(0, P, size=[N, 1])


Case = tuple[Callable[[], Likelihood], Callable[[np.random.Generator, int], np.ndarray]]
#: Likelihoods of which a function of the inputs is a part.
OF_INPUTS: dict[str, Case] = {
    "variance": (lambda: Gaussian(variance=Growing()), _real),
    "scale": (lambda: Gaussian(scale=Growing()), _real),
    "student-t": (lambda: StudentT(scale=Growing()), _real),
    "gamma": (lambda: Gamma(shape=Growing()), _positive),
    "gamma of a link": (lambda: Gamma(tf.math.softplus, shape=Growing()), _positive),
    "beta": (lambda: Beta(scale=Growing()), _positive),
    "gpflow's nodes": (
        lambda: StudentT(Growing(), quadrature=gpflow.quadrature.NDiagGHQuadrature(1, 9)),
        _real,
    ),
    "missing": (lambda: MissingOutputs(Gaussian(variance=Growing())), _missing),
    "missing student-t": (lambda: MissingOutputs(StudentT(Growing())), _missing),
    "weighted": (lambda: WeightedLikelihood(Gaussian(variance=Growing()), P), _indexed),
    "user's": (OfInputs, _real),
}
OTHERS: dict[str, Case] = {
    "switched": (lambda: SwitchedLikelihood([Gaussian(scale=Growing()), Gamma()]), _indexed),
    "gaussian": (lambda: Gaussian(np.array([0.1, 0.2])), _real),
    "poisson": (lambda: Poisson(tf.math.softplus), _counts),
    "bernoulli": (Bernoulli, _counts),
    "ordinal": (lambda: Ordinal(np.array([0.3])), _counts),
    "softmax": (lambda: Softmax(P), _classes),
    "robust max": (lambda: MultiClass(P), _classes),
    "heteroskedastic": (HeteroskedasticTFPConditional, lambda rng, N: _real(rng, N)[:, :1]),
    "draws": (lambda: GaussianMC(variance=gpflow.functions.Linear([[0.1]], 0.5)), _real),
    "user's of matrices": (OfMatrices, _real),
}
CASES = {**OF_INPUTS, **OTHERS}


def _arguments(name: str, seed: int = 0) -> tuple[Likelihood, list[tf.Tensor]]:
    """Three draws of two functions at four points."""
    make, observe = CASES[name]
    rng = np.random.default_rng(seed)
    F, variance = rng.normal(size=[3, 4, P]), rng.uniform(0.01, 2.0, size=[3, 4, P])
    arrays = rng.normal(size=[4, 1]), F, variance, observe(rng, 4)
    return make(), [tf.constant(x) for x in arrays]


@pytest.mark.parametrize("name", CASES)
def test_draws_are_as_each_by_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    likelihood, (X, mean, variance, Y) = _arguments(name)

    def no_shift(dims: int, seed: Any, batch: tf.Tensor) -> tf.Tensor:
        return tf.zeros(tf.concat([batch, [dims]], axis=0), tf.int64)

    # But for it each draw has the nodes that it has by itself.
    monkeypatch.setattr(monte_carlo, "digital_shift", no_shift)

    def compare(function: Callable, *draws: tf.Tensor, observed: bool = True) -> None:
        last = [Y] if observed else []
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(draws)
            actual = tf.stack(function(likelihood, X, *draws, *last))
            each = [
                tf.stack(function(likelihood, X, *(x[s] for x in draws), *last)) for s in range(3)
            ]
            expected = tf.stack(each, axis=0 if observed else 1)
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)
        slopes = [
            tape.gradient(x, draws, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            for x in (actual, expected)
        ]
        for slope, wanted in zip(*slopes):
            np.testing.assert_allclose(slope, wanted, rtol=1e-6, atol=1e-9)

    compare(variational_expectations, mean, variance)
    compare(predict_log_density, mean, variance)
    compare(predict_mean_and_var, mean, variance, observed=False)
    compare(log_prob, mean)


@given(index=st.lists(st.integers(0, 2), min_size=1, max_size=6))
@settings(max_examples=10, deadline=None)
def test_observations_of_several_likelihoods_in_any_order(index: list[int]) -> None:
    parts = Gaussian(scale=Growing()), Gaussian(0.3), Gaussian(2.0)
    rng, N = np.random.default_rng(0), len(index)
    X, mean, variance = rng.normal(size=[N, 1]), rng.normal(size=[3, N, 2]), np.ones([3, N, 2])
    Y = rng.normal(size=[N, 2])
    for function in (variational_expectations, predict_log_density):
        actual = function(SwitchedLikelihood(parts), X, mean, variance, np.c_[Y, index])
        each = np.stack([function(part, X, mean, variance, Y) for part in parts])
        np.testing.assert_allclose(actual, each[index, :, range(N)].T)


@pytest.mark.parametrize("name", OF_INPUTS)
def test_functions_of_inputs_are_given_the_batch_as_it_is(name: str) -> None:
    likelihood, (X, mean, variance, Y) = _arguments(name)
    variational_expectations(likelihood, X, mean, variance, Y)
    predict_log_density(likelihood, X, mean, variance, Y)
    predict_mean_and_var(likelihood, X, mean, variance)
    log_prob(likelihood, X, mean, Y)
    (function,) = (part for part in likelihood.submodules if isinstance(part, Growing))
    assert set(function.rows) == {4}
