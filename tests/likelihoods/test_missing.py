"""Outputs that are missing add nothing: against dropping them by hand."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import (
    Bernoulli,
    Gaussian,
    Poisson,
    ScalarLikelihood,
    Softmax,
    StudentT,
    SwitchedLikelihood,
)

import gpflow_deep as gd
from gpflow_deep.likelihoods import MissingOutputs, log_normaliser, probit
from tests.models.contract import X, make_model

NAN = np.nan
MEAN = tf.constant([[0.1, -0.4, 2.0], [0.3, 0.2, -1.0], [0.0, 1.0, 0.5]], tf.float64)
VARIANCE = tf.constant([[0.5, 1.0, 0.2], [0.1, 2.0, 0.4], [1.0, 1.0, 1.0]], tf.float64)
INPUTS = tf.zeros([3, 1], tf.float64)


class Own(ScalarLikelihood):
    """A user's, with a closed form of its own."""

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> tf.Tensor:
        return -tf.square(Y - F)

    def _variational_expectations(self, X: Any, Fmu: Any, Fvar: Any, Y: Any) -> tf.Tensor:
        return tf.reduce_sum(-tf.square(Y - Fmu) - Fvar, axis=-1)

    def _conditional_mean(self, X: Any, F: Any) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: Any, F: Any) -> tf.Tensor:
        return tf.ones_like(F)


CASES = {
    "gaussian": lambda: Gaussian(0.3),
    "gaussian of inputs": lambda: Gaussian(scale=gpflow.functions.Linear([[0.3]], 1.0)),
    "probit": lambda: Bernoulli(invlink=probit),
    "poisson": Poisson,
    "student-t": StudentT,
    "own": Own,
}


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", CASES)
def test_missing_entries_are_as_if_dropped(name: str, alpha: float) -> None:
    inner = CASES[name]()
    Y = np.array([[1.0, NAN, 0.0], [1.0, 1.0, 0.0], [NAN, NAN, NAN]])
    with tf.GradientTape() as tape:
        tape.watch([MEAN, VARIANCE])
        actual = log_normaliser(
            MissingOutputs(inner), INPUTS, MEAN, VARIANCE, tf.constant(Y), alpha
        )
    slopes = tape.gradient(actual, [MEAN, VARIANCE])
    assert actual[2] == 0
    for n, columns in enumerate([[0, 2], [0, 1, 2]]):
        rows = [tf.constant(x.numpy()[n : n + 1, columns]) for x in (MEAN, VARIANCE)]
        with tf.GradientTape() as tape:
            tape.watch(rows)
            expected = log_normaliser(inner, INPUTS[:1], *rows, Y[n : n + 1, columns], alpha)
        np.testing.assert_allclose(actual[n], expected[0], rtol=1e-6)
        for slope, wanted in zip(slopes, tape.gradient(expected, rows)):
            np.testing.assert_allclose(slope.numpy()[n, columns], wanted[0], rtol=1e-5, atol=1e-9)
    for slope in slopes:
        assert (slope.numpy()[np.isnan(Y)] == 0).all()


def test_what_is_missing_leaves_gradients_alone_where_its_density_is_nothing() -> None:
    mean, variance = (tf.constant([[0.2, x]], tf.float64) for x in (-1000.0, 1e4))
    Y = tf.constant([[1.0, NAN]], tf.float64)
    for alpha in (0.0, 0.5, 1.0):
        with tf.GradientTape() as tape:
            tape.watch([mean, variance])
            log_Z = log_normaliser(MissingOutputs(Poisson()), INPUTS[:1], mean, variance, Y, alpha)
        assert np.isfinite(log_Z).all()
        assert all(np.isfinite(slope).all() for slope in tape.gradient(log_Z, [mean, variance]))


def test_it_is_a_likelihood_like_others() -> None:
    inner, Y = StudentT(0.3), tf.constant([[1.0, NAN, 0.0], [1.0, 1.0, 0.0], [NAN, NAN, NAN]])
    Y = tf.cast(Y, tf.float64)
    likelihood = MissingOutputs(inner)
    np.testing.assert_allclose(
        likelihood.log_prob(INPUTS, MEAN, Y)[:2],
        [
            inner.log_prob(INPUTS[:1], MEAN.numpy()[:1, [0, 2]], Y.numpy()[:1, [0, 2]])[0],
            inner.log_prob(INPUTS, MEAN, Y)[1],
        ],
    )
    np.testing.assert_allclose(
        likelihood.predict_mean_and_var(INPUTS, MEAN, VARIANCE),
        inner.predict_mean_and_var(INPUTS, MEAN, VARIANCE),
        atol=1e-12,
    )
    for alpha, method in ((0.0, "variational_expectations"), (1.0, "predict_log_density")):
        np.testing.assert_array_equal(
            getattr(likelihood, method)(INPUTS, MEAN, VARIANCE, Y),
            log_normaliser(likelihood, INPUTS, MEAN, VARIANCE, Y, alpha),
        )
    assert len(likelihood.trainable_parameters) == 1


def test_correlated_outputs_of_which_some_are_missing() -> None:
    root = np.random.default_rng(0).normal(size=(3, 3, 3))
    covariance = tf.constant(root @ np.swapaxes(root, 1, 2))
    Y = np.array([[1.0, NAN, 0.0], [1.0, 1.0, 0.0], [NAN, NAN, NAN]])
    inner = Gaussian(0.3)
    actual = log_normaliser(MissingOutputs(inner), INPUTS, MEAN, covariance, tf.constant(Y), 0.7)
    kept = [0, 2]
    expected = log_normaliser(
        inner,
        INPUTS[:1],
        MEAN.numpy()[:1, kept],
        tf.constant(covariance.numpy()[:1][:, kept][:, :, kept]),
        Y[:1, kept],
        0.7,
    )
    np.testing.assert_allclose(actual[0], expected[0])
    np.testing.assert_allclose(actual[2], 0.0, atol=1e-12)


@pytest.mark.parametrize("inner", [Gaussian(0.3), Poisson(), StudentT(0.4)])
@pytest.mark.parametrize("batch", [(2, 2), (5, 2), (2, 1, 3), ()])
def test_batches_are_rows(inner: ScalarLikelihood, batch: tuple[int, ...]) -> None:
    """As GPflow's likelihoods take them; two rows of two outputs are no covariance."""
    likelihood, rng = MissingOutputs(inner), np.random.default_rng(0)
    Y = rng.poisson(2.0, size=[*batch, 2]).astype(float)
    Y[..., 0] = np.where(rng.random(batch) < 0.3, np.nan, Y[..., 0])
    X, mean, variance = np.zeros([*batch, 1]), rng.normal(size=Y.shape), rng.uniform(size=Y.shape)
    flat = [x.reshape(-1, x.shape[-1]) for x in (X, mean, variance, Y)]
    for method in ("variational_expectations", "predict_log_density"):
        whole = getattr(likelihood, method)(X, mean, variance, Y)
        expected = getattr(likelihood, method)(*map(tf.constant, flat))
        np.testing.assert_allclose(whole, np.reshape(expected, batch), rtol=1e-12)
        assert np.isfinite(whole).all()


METHODS = {
    "log_prob": "XFY",
    "conditional_mean": "XF",
    "conditional_variance": "XF",
    "predict_mean_and_var": "XFV",
    "variational_expectations": "XFVY",
    "predict_log_density": "XFVY",
}
# Of X, the latent functions, their variances and Y. Those as large as rows or outputs hide mistakes.
BATCHES = [
    [(3,), (3, 3), (3, 3), (3,)],
    [(2,), (5, 2), (5, 2), (2,)],
    [(1,), (5, 1), (5, 1), (1,)],
    [(1, 2), (5, 2), (5, 2), (1, 2)],
    [(2,), (2,), (1, 2), (5, 2)],
]


@pytest.mark.parametrize("name", ["gaussian of inputs", "student-t", "own"])
@pytest.mark.parametrize("method", METHODS)
def test_arguments_are_broadcast(method: str, name: str) -> None:
    """As GPflow's likelihoods do it: to what the base says of all rows, where nothing is missing."""
    base, rng, P = CASES[name](), np.random.default_rng(0), 3
    for batches in BATCHES:
        sizes = zip("XFVY", batches, (1, P, P, P))
        given = {key: rng.uniform(0.5, 1.5, [*b, columns]) for key, b, columns in sizes}
        arguments = [given[key] for key in METHODS[method]]
        batch = np.broadcast_shapes(*(x.shape[:-1] for x in arguments))
        whole = [np.broadcast_to(x, [*batch, x.shape[-1]]) for x in arguments]
        rows = [x.reshape(-1, x.shape[-1]) for x in whole]
        actual = getattr(MissingOutputs(base), method)(*arguments)
        ours = getattr(gd.likelihoods, method, None)
        expected = ours(base, *rows) if ours else getattr(base, method)(*rows)
        for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected)):
            assert one.shape[: len(batch)] == batch
            np.testing.assert_allclose(one, np.reshape(other, one.shape), rtol=1e-10)


@pytest.mark.parametrize("wrong", [Softmax(3), SwitchedLikelihood([Gaussian()]), "gaussian"])
def test_only_scalar_likelihoods(wrong: Any) -> None:
    with pytest.raises(TypeError, match="likelihood: expected a likelihood of one latent function"):
        MissingOutputs(wrong)


def test_a_model_of_outputs_that_are_missing() -> None:
    Y = np.c_[np.sin(X[:, :1]), np.cos(X[:, :1])]
    Y[::2, 1] = NAN
    model = make_model("mean-field", likelihood=MissingOutputs(Gaussian(0.1)), output_dim=2)
    density = model.predict_log_density((X, Y))
    means, variances, log_weights = model.predict_f_mixture(X)
    noise = model.likelihood.likelihood.variance
    components = tfp.distributions.Normal(means, tf.sqrt(variances + noise)).log_prob(Y)
    total = tf.reduce_sum(tf.where(np.isnan(Y), tf.zeros_like(components), components), axis=-1)
    np.testing.assert_allclose(density, tf.reduce_logsumexp(total + log_weights[:, None], axis=0))
    with pytest.raises(ValueError, match=r"data\[1\].*NaN.*gpflow_deep.likelihoods.MissingOutputs"):
        make_model("mean-field", output_dim=2).predict_log_density((X, Y))
