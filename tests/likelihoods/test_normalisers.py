"""log Z of every kind of likelihood against dense quadrature and its limits."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import (
    Bernoulli,
    Gaussian,
    HeteroskedasticTFPConditional,
    Likelihood,
    MultiClass,
    Poisson,
    Softmax,
    StudentT,
)
from scipy.special import logsumexp
from scipy.stats import norm

from gpflow_deep.likelihoods import (
    MissingOutputs,
    log_normaliser,
    predict_log_density,
    probit,
)
from gpflow_deep.numerics.draws import quasi_normals

RNG = np.random.default_rng(0)
N = 5
X = tf.constant(RNG.normal(size=(N, 1)))
MEAN = tf.constant(RNG.normal(size=(N, 1)))
VARIANCE = tf.constant(RNG.uniform(0.1, 2.0, size=(N, 1)))
SCALAR = {
    "gaussian": (lambda: Gaussian(0.3), RNG.normal(size=(N, 1))),
    "heteroscedastic": (
        lambda: Gaussian(scale=gpflow.functions.Linear([[0.3]], 1.0)),
        RNG.normal(size=(N, 1)),
    ),
    "bernoulli": (Bernoulli, RNG.integers(0, 2, size=(N, 1)).astype(float)),
    "probit": (
        lambda: Bernoulli(invlink=probit),
        RNG.integers(0, 2, size=(N, 1)).astype(float),
    ),
    "poisson": (Poisson, RNG.poisson(2.0, size=(N, 1)).astype(float)),
    "student": (StudentT, RNG.normal(size=(N, 1))),
}


def by_quadrature(likelihood: Likelihood, Y: np.ndarray, alpha: float) -> np.ndarray:
    f = np.linspace(-9.0, 9.0, 4001)[:, None, None]
    F = MEAN + f * tf.sqrt(VARIANCE)
    log_p = likelihood._scalar_log_prob(X[None], F, tf.constant(Y)[None]).numpy()[..., 0]
    density = np.exp(-0.5 * f[..., 0] ** 2) / np.sqrt(2 * np.pi) * (f[1, 0, 0] - f[0, 0, 0])
    if alpha == 0:
        return (density * log_p).sum(0)
    return np.log((density * np.exp(alpha * log_p)).sum(0)) / alpha


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("name", SCALAR)
def test_one_function(name: str, alpha: float) -> None:
    make, Y = SCALAR[name]
    likelihood = make()
    expected = by_quadrature(likelihood, Y, alpha)
    for covariance in (VARIANCE, VARIANCE[..., None]):
        actual = log_normaliser(likelihood, X, MEAN, covariance, tf.constant(Y), alpha)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_small_powers_tend_to_the_expected_log_density() -> None:
    rng = np.random.default_rng(1)
    likelihood, Y = Gaussian(0.3), tf.constant(rng.normal(size=(N, 1)))
    limit = likelihood.variational_expectations(X, MEAN, VARIANCE, Y)
    for covariance in (VARIANCE, VARIANCE[..., None]):
        assert_limit = log_normaliser(likelihood, X, MEAN, covariance, Y, 0.0)
        np.testing.assert_allclose(assert_limit, limit, rtol=1e-12)
        near = log_normaliser(likelihood, X, MEAN, covariance, Y, 1e-9)
        np.testing.assert_allclose(near, limit, rtol=1e-6)


def test_far_tail_of_the_probit() -> None:
    """Where the probability itself is below the smallest double."""
    far = tf.constant([[-60.0]], tf.float64)
    value = log_normaliser(
        Bernoulli(invlink=probit), far, far, tf.ones_like(far), tf.ones_like(far)
    )
    z = 60.0 / np.sqrt(2.0)
    assert value.numpy()[0] == pytest.approx(-0.5 * z**2 - np.log(z * np.sqrt(2 * np.pi)), rel=1e-5)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_correlated_gaussian_outputs(alpha: float) -> None:
    """The closed form against the same by draws."""
    rng = np.random.default_rng(0)  # few draws reach what is far in the tails
    root = rng.normal(size=(N, 2, 2)) * 0.5
    V = tf.constant(root @ np.swapaxes(root, 1, 2))
    mean, Y = tf.constant(rng.normal(size=(N, 2))), tf.constant(rng.normal(size=(N, 2)))
    closed = log_normaliser(Gaussian(0.4), X, mean, V, Y, alpha)
    noise = quasi_normals(2**15, [2], 0)[0]
    F = mean + tf.einsum("npq,sq->snp", np.linalg.cholesky(V), noise)
    log_p = tf.reduce_sum(gpflow.logdensities.gaussian(Y, F, tf.constant(0.4, F.dtype)), axis=-1)
    drawn = (tf.reduce_logsumexp(alpha * log_p, axis=0) - np.log(len(noise))) / alpha
    np.testing.assert_allclose(closed, drawn, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_outputs_with_noise_of_their_own(alpha: float) -> None:
    """Independent outputs are one by one what they are together, missing ones too."""
    rng = np.random.default_rng(1)
    mean, variance = tf.constant(rng.normal(size=(N, 2))), tf.constant(rng.uniform(0.1, 2, (N, 2)))
    Y, likelihood = rng.normal(size=(N, 2)), Gaussian(np.array([[0.1, 0.7]]))
    each = [
        log_normaliser(
            Gaussian(noise), X, mean[:, p : p + 1], variance[:, p : p + 1], Y[:, p : p + 1], alpha
        )
        for p, noise in enumerate([0.1, 0.7])
    ]
    for covariance in (variance, tf.linalg.diag(variance)):
        together = log_normaliser(likelihood, X, mean, covariance, Y, alpha)
        np.testing.assert_allclose(together, sum(each))
        Y_missing = np.where([True, False], Y, np.nan)
        present = log_normaliser(MissingOutputs(likelihood), X, mean, covariance, Y_missing, alpha)
        np.testing.assert_allclose(present, each[0])


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("joint", [False, True])
def test_robust_max_by_the_probability_of_the_largest(joint: bool, alpha: float) -> None:
    """Against plain draws, which have no gradients, where this one has some."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(N, 3, 3)) * 0.6
    covariance = root @ np.swapaxes(root, 1, 2)
    if not joint:
        covariance *= np.eye(3)
    mean, Y = tf.constant(rng.normal(size=(N, 3))), tf.constant([[0.0], [1.0], [2.0], [1.0], [0.0]])
    likelihood, noise = MultiClass(3), quasi_normals(2**14, [3], 0)[0]
    F = mean + np.einsum("npq,sq->snp", np.linalg.cholesky(covariance), noise)
    p = np.where(np.argmax(F, axis=-1) == Y.numpy()[:, 0], 1.0 - 1e-3, 1e-3 / 2.0)
    drawn = np.log(np.mean(p**alpha, 0)) / alpha if alpha else np.mean(np.log(p), 0)
    V = tf.constant(covariance if joint else np.einsum("npp->np", covariance))
    with tf.GradientTape() as tape:
        tape.watch(mean)
        log_Z = log_normaliser(likelihood, X, mean, V, Y, alpha, noise[:2000])
    np.testing.assert_allclose(log_Z, drawn, rtol=0.02, atol=0.01)
    assert (np.abs(tape.gradient(log_Z, mean)).max(axis=1) > 1e-3).all()


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_two_classes_by_draws_are_a_logistic_function_of_a_difference(alpha: float) -> None:
    rng = np.random.default_rng(1)
    root, mean = rng.normal(size=(N, 2, 2)), rng.normal(size=(N, 2))
    V = root @ np.swapaxes(root, 1, 2)
    difference = mean[:, 1:] - mean[:, :1]
    variance = (V[:, 0, 0] + V[:, 1, 1] - 2.0 * V[:, 0, 1])[:, None]
    Y = np.array([[0], [1], [1], [0], [0]])
    expected = log_normaliser(Bernoulli(tf.sigmoid), X, difference, variance, 1.0 * Y, alpha)
    noise = quasi_normals(2**13, [2], 0)[0]
    by_draws = log_normaliser(Softmax(2), X, mean, V, Y, alpha, noise)
    np.testing.assert_allclose(by_draws, expected, rtol=1e-2)


@pytest.mark.parametrize("alpha", [0.4, 1.0])
def test_correlated_mean_and_scale(alpha: float) -> None:
    """Against the trapezoidal rule over both, the scale given the mean."""
    rng = np.random.default_rng(1)
    mean, Y = rng.normal(size=(N, 2)), rng.normal(size=(N, 1))
    root = 0.5 * np.tril(rng.normal(size=(N, 2, 2)))
    actual = log_normaliser(
        HeteroskedasticTFPConditional(), X, mean, root @ np.swapaxes(root, 1, 2), Y, alpha
    )
    z = np.linspace(-9.0, 9.0, 361)
    grid = np.stack(np.meshgrid(z, z), axis=-1)
    f, g = np.moveaxis(mean + np.einsum("npq,abq->abnp", root, grid), -1, 0)
    log_p = alpha * norm.logpdf(Y[:, 0], f, np.exp(g)) + norm.logpdf(grid).sum(-1)[..., None]
    expected = (logsumexp(log_p, axis=(0, 1)) + 2.0 * np.log(z[1] - z[0])) / alpha
    np.testing.assert_allclose(actual, expected, rtol=1e-8)


@pytest.mark.parametrize("covariance", [np.ones((2, 2)), np.zeros((2, 2)), np.zeros(2)])
def test_functions_without_variance_of_their_own(covariance: np.ndarray) -> None:
    """Draws of them have values and gradients: those of one function, and of none at all."""
    mean, V = tf.constant([[0.3, -0.2]], tf.float64), tf.constant(covariance[None])
    noise = np.random.default_rng(0).normal(size=(64, 2))
    with tf.GradientTape() as tape:
        tape.watch([mean, V])
        log_Z = log_normaliser(Softmax(2), X[:1], mean, V, tf.constant([[1]]), 1.0, noise)
    np.testing.assert_allclose(
        log_Z, Softmax(2).log_prob(X[:1], mean, tf.constant([[1]])), rtol=1e-6
    )
    assert all(np.isfinite(slope).all() for slope in tape.gradient(log_Z, [mean, V]))


def test_classes() -> None:
    rng = np.random.default_rng(1)
    Y = tf.constant([[0], [1], [2], [1], [0]], tf.int64)
    mean, variance = tf.constant(rng.normal(size=(N, 3))), tf.ones([N, 3], tf.float64)
    with pytest.raises(ValueError, match=r"noise: expected .*\[S, 3\].*Softmax.*None"):
        log_normaliser(Softmax(3), X, mean, variance, Y)
    noise = quasi_normals(4096, [3], 0)[0]
    for covariance in (variance, tf.linalg.diag(variance)):
        log_Z = [
            log_normaliser(
                Softmax(3), X, mean, covariance, tf.fill([N, 1], np.int64(c)), 1.0, noise
            )
            for c in range(3)
        ]
        np.testing.assert_allclose(np.exp(log_Z).sum(0), 1.0)
        # Classes may come as numbers of any type.
        last = log_normaliser(Softmax(3), X, mean, covariance, np.full([N, 1], 2.0), 1.0, noise)
        np.testing.assert_array_equal(last, log_Z[2])
    robust = MultiClass(3)
    log_Z = log_normaliser(robust, X, mean, variance, Y)
    np.testing.assert_allclose(log_Z, predict_log_density(robust, X, mean, variance, Y))
    # GPflow's keeps a distance of 1e-6 from 0 and 1.
    np.testing.assert_allclose(log_Z, robust.predict_log_density(X, mean, variance, Y), rtol=1e-5)
