"""Expectations of log densities, densities and predictions against dense grids, and whose method is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    HeteroskedasticTFPConditional,
    Ordinal,
    Poisson,
    ScalarLikelihood,
    Softmax,
    StudentT,
    SwitchedLikelihood,
)
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

from gpflow_deep.likelihoods import (
    log_normaliser,
    log_prob,
    predict_log_density,
    predict_mean_and_var,
    probit,
    variational_expectations,
)
from gpflow_deep.likelihoods.log_probs import (
    log_probit,
    ordinal_probabilities,
    scalar_log_prob,
)

VARIANCES = (1e-6, 0.01, 0.5, 4.0, 100.0)
MEANS = (0.0, 1.7, -4.0)


class Laplace(ScalarLikelihood):
    """As a user would write it."""

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> tf.Tensor:
        return gpflow.logdensities.laplace(Y, F, tf.constant(0.2, F.dtype))

    def _conditional_mean(self, X: Any, F: Any) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: Any, F: Any) -> tf.Tensor:
        return tf.fill(tf.shape(F), tf.constant(0.08, F.dtype))


def softplus(x: tf.Tensor) -> tf.Tensor:
    return tf.math.softplus(x)


# Likelihood, observation, where it is narrow and how, and the tolerance for variance 100: there the several
# features of one log density are ten times as narrow as the normal, and the nodes gather about one.
CASES: dict[str, tuple[Callable[[], ScalarLikelihood], float, float, float, float]] = {
    "probit": (lambda: Bernoulli(invlink=probit), 0.0, 0.0, 1.0, 1e-6),
    "sigmoid": (lambda: Bernoulli(invlink=tf.nn.sigmoid), 1.0, 0.0, 1.0, 1e-6),
    "gpflow's probit": (Bernoulli, 1.0, -3.0, 0.5, 5e-4),
    "student-t": (StudentT, 0.3, 0.3, 1.0, 1e-6),
    "narrow student-t": (lambda: StudentT(0.02), 0.3, 0.3, 0.02, 2e-3),
    "narrow student-t far": (lambda: StudentT(0.02), 5.0, 5.0, 0.02, 2e-3),
    "beta": (Beta, 0.9, 0.0, 1.0, 0.05),
    "poisson": (lambda: Poisson(invlink=softplus), 5.0, 5.0, 1.0, 1e-5),
    "ordinal": (lambda: Ordinal(np.array([-1.0, 0.0, 1.5])), 2.0, 0.7, 1.0, 1e-5),
    "gamma": (lambda: Gamma(invlink=softplus, shape=2.0), 3.0, 1.5, 1.0, 1e-5),
    "exponential": (lambda: Exponential(invlink=softplus), 3.0, 1.5, 1.0, 1e-5),
    "laplace": (Laplace, 0.3, 0.3, 1e-3, 0.02),
}


def _dense(
    function: Callable, mean: float, variance: float, centre: float, width: float, log: bool
) -> list[float]:
    """The expectation and its derivatives by mean and variance, on a grid dense about both."""
    limit, scale = 20.0, variance**0.5
    offsets = np.geomspace(1e-3 * width / scale, 2 * limit, 1500)
    z = (centre - mean) / scale + np.concatenate([-offsets[::-1], [0.0], offsets])
    z = np.unique(np.concatenate([np.linspace(-limit, limit, 4001), z[np.abs(z) < limit]]))
    x, w = np.polynomial.legendre.leggauss(4)
    half = 0.5 * np.diff(z)[:, None]
    nodes = (0.5 * (z[1:] + z[:-1])[:, None] + half * x).ravel()
    log_weights = np.log((half * w).ravel()) - 0.5 * nodes**2 - 0.5 * np.log(2 * np.pi)
    m, v = tf.constant(mean, tf.float64), tf.constant(variance, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([m, v])
        values = function((m + tf.sqrt(v) * nodes)[:, None, None])[:, 0, 0]
        if log:
            result = tf.reduce_logsumexp(values + log_weights)
        else:
            result = tf.reduce_sum(values * tf.exp(log_weights))
    return [float(result), *map(float, tape.gradient(result, [m, v]))]


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_against_a_dense_grid(name: str, alpha: float) -> None:
    make, y, centre, width, tolerance = CASES[name]
    likelihood = make()
    grid = [(m, v) for v in VARIANCES for m in MEANS if v < 100 or m != -4.0]
    mean, variance = (tf.constant(column)[:, None] for column in np.transpose(grid))
    Y, X = tf.fill(mean.shape, tf.constant(y, tf.float64)), tf.zeros([len(grid), 2], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        value = log_normaliser(likelihood, X, mean, variance, Y, alpha)
    actual = np.c_[value[:, None], tf.concat(tape.gradient(value, [mean, variance]), axis=1)]

    def log_p(F: tf.Tensor) -> tf.Tensor:
        value = scalar_log_prob(likelihood, X[:1], F, Y[:1])
        return alpha * value if alpha else value

    for row, (m, v) in zip(actual, grid):
        expected = np.array(_dense(log_p, m, v, centre, width, alpha > 0)) / (alpha or 1.0)
        error = np.abs(row - expected) / (1.0 + np.abs(expected))
        if name == "laplace":  # whose derivative jumps
            assert error[0] < 0.02
        else:
            assert error[0] < (tolerance if v == 100 else 1e-4), (m, v)
            assert error[1:].max() < max(tolerance, 2e-3), (m, v)


def test_gpflow_s_quadrature_is_not_good_enough() -> None:
    """That the tests here can fail: what this package had to replace."""
    X, zero = tf.zeros([1, 1], tf.float64), tf.zeros([1, 1], tf.float64)
    theirs = Bernoulli(invlink=probit).variational_expectations(X, zero, zero + 100.0, zero)
    assert np.isinf(theirs)
    narrow = StudentT(0.02)
    args = X, zero, zero + 0.5, zero + 0.3
    ours = predict_log_density(narrow, *args) - narrow.predict_log_density(*args)
    assert abs(float(ours)) > 0.2


def test_log_probit_with_its_derivatives() -> None:
    for dtype, rtol in ((tf.float64, 1e-8), (tf.float32, 1e-5)):
        x = tf.constant(np.r_[-np.geomspace(1e4, 1e-3, 300), np.geomspace(1e-3, 1e4, 50)], dtype)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                value = log_probit(x)
            first = inner.gradient(value, x)
        second = outer.gradient(first, x)
        expected = log_ndtr(x.numpy().astype(float))
        np.testing.assert_allclose(value, expected, rtol=rtol, atol=1e-7)
        middle = np.abs(x.numpy()) < 30
        slope = np.exp(-0.5 * x.numpy().astype(float) ** 2 - expected) / np.sqrt(2 * np.pi)
        np.testing.assert_allclose(first.numpy()[middle], slope[middle], rtol=1e-4, atol=1e-30)
        assert np.isfinite(first).all() and np.isfinite(second).all()
        assert (np.abs(second) <= 1.0 + 1e-3).all()


@pytest.mark.parametrize("jit", [False, True])
def test_compiled_with_second_derivatives(jit: bool) -> None:
    likelihood = Bernoulli(invlink=probit)
    X, Y = tf.zeros([3, 1], tf.float64), tf.constant([[0.0], [1.0], [1.0]], tf.float64)
    mean, variance = (tf.constant(x, tf.float64) for x in ([[0.3], [-2.0], [9.0]], [[100.0]] * 3))

    def value(mean: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(variational_expectations(likelihood, X, mean, variance, Y))

    def curvature(mean: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(mean)
            with tf.GradientTape() as inner:
                inner.watch(mean)
                total = value(mean)
            slope = inner.gradient(total, mean)
        return outer.gradient(slope, mean)

    actual = tf.function(curvature, autograph=False, jit_compile=jit)(mean)
    step = 1e-2
    ends = []
    for sign in (1.0, -1.0):
        with tf.GradientTape() as tape:
            moved = mean + sign * step
            tape.watch(moved)
            total = value(moved)
        ends.append(tape.gradient(total, moved))
    np.testing.assert_allclose(actual, (ends[0] - ends[1]) / (2 * step), rtol=1e-3, atol=1e-6)


def test_single_precision() -> None:
    for name in ("probit", "narrow student-t", "beta"):
        make, y, *_ = CASES[name]
        results = []
        for dtype in (np.float64, np.float32):
            gpflow.config.set_default_float(dtype)
            mean, variance = tf.constant([[0.2], [-1.0]], dtype), tf.constant([[0.5], [4.0]], dtype)
            Y, X = tf.fill([2, 1], tf.constant(y, dtype)), tf.zeros([2, 1], dtype)
            args = make(), X, mean, variance, Y
            results.append([variational_expectations(*args), predict_log_density(*args)])
        np.testing.assert_allclose(results[1], results[0], rtol=2e-4, atol=2e-4)


def test_predictions_of_observations() -> None:
    mean, variance = (
        tf.constant([[0.5], [-3.0]], tf.float64),
        tf.constant([[0.5], [100.0]], tf.float64),
    )
    X = tf.zeros([2, 1], tf.float64)
    z = np.linspace(-12, 12, 20001)[:, None, None]
    F = mean + tf.sqrt(variance) * z
    weights = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    for make in (lambda: Bernoulli(invlink=tf.nn.sigmoid), lambda: Poisson(invlink=softplus), Beta):
        likelihood = make()
        means = likelihood.conditional_mean(X, F).numpy()
        expected = (weights * means).sum(0)
        spread = likelihood.conditional_variance(X, F).numpy() + (means - expected) ** 2
        actual = predict_mean_and_var(likelihood, X, mean, variance)
        np.testing.assert_allclose(actual[0], expected, rtol=1e-5)
        np.testing.assert_allclose(actual[1], (weights * spread).sum(0), rtol=1e-4)


@pytest.mark.parametrize("sigma", [0.01, 0.1, 1.0])
def test_ordinal_densities_and_moments_under_wide_functions(sigma: float) -> None:
    """Bins' edges are normal: a normal function widens them."""
    likelihood = Ordinal(np.array([-1.0, 0.0, 1.5]))
    likelihood.sigma.assign(sigma)
    mean, variance = (
        tf.constant(x, tf.float64)[:, None] for x in ([0.3, -0.8, 4.0, 1.5], [1.0, 4.0, 25.0, 1e-6])
    )
    X = tf.zeros([4, 1], tf.float64)
    edges = np.array([-np.inf, -1.0, 0.0, 1.5, np.inf])
    scale = np.sqrt(sigma**2 + variance.numpy())
    p = np.diff(norm.cdf((edges - mean.numpy()) / scale) * (1 - 2e-3) + 1e-3, axis=1)
    bins = np.arange(4.0)
    for k in range(4):
        Y = tf.fill([4, 1], tf.constant(float(k), tf.float64))
        expected = np.log(p[:, k] + 1e-6)
        args = likelihood, X, mean, variance, Y
        np.testing.assert_allclose(predict_log_density(*args), expected, rtol=1e-8)
        np.testing.assert_allclose(log_normaliser(*args), expected, rtol=1e-8)
    actual = predict_mean_and_var(likelihood, X, mean, variance)
    np.testing.assert_allclose(actual[0][:, 0], p @ bins, rtol=1e-8)
    np.testing.assert_allclose(actual[1][:, 0], p @ bins**2 - (p @ bins) ** 2, rtol=1e-8)


@pytest.mark.parametrize("ratio", [1e3, 1e5, 1e8])
def test_peaks_far_narrower_than_functions(ratio: float) -> None:
    """Of a Student-t that is a point beside a function the density is the function's own."""
    z = tf.constant([[0.0], [0.3], [0.77], [-1.5], [3.0]], tf.float64)
    X, zero = tf.zeros([5, 1], tf.float64), tf.zeros_like(z)
    density = predict_log_density(StudentT(1.0, df=3.0), X, zero, zero + ratio**2, ratio * z)
    # The density's tail, beside the normal: some multiple of the inverse of the ratio.
    expected = norm.logpdf(z.numpy()[:, 0]) - np.log(ratio)
    np.testing.assert_allclose(density, expected, atol=20.0 / ratio + 2e-3)


class _Energy(ScalarLikelihood):
    """Of f^2, as a user writes one: two functions are as likely."""

    def __init__(self, scale: np.ndarray) -> None:
        super().__init__()
        self.scale = scale

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> tf.Tensor:
        return gpflow.logdensities.gaussian(Y, tf.square(F), np.square(self.scale))

    def _conditional_mean(self, X: Any, F: Any) -> tf.Tensor:
        return tf.square(F)

    def _conditional_variance(self, X: Any, F: Any) -> tf.Tensor:
        return np.square(self.scale) + tf.zeros_like(F)


def test_two_narrow_peaks() -> None:
    """Of which one had all nodes, the other none or too many: half the density, or the double."""
    rng = np.random.default_rng(0)
    logarithms = rng.uniform([-5.0, -1.0, -3.0], [0.0, 2.0, 1.1], [300, 3])
    scale, deviation, root = np.exp(logarithms.T)
    mean = rng.uniform(-3.0, 3.0, 300)
    # Both peaks at nodes of a grid, on both sides of one, and both in neighbouring cells of one.
    scale[:3], deviation[:3], root[:3], mean[:3] = (
        0.05,
        [1.0, 1.0, 3.0],
        [1.0, 0.5, 2.0],
        [0.0, 0.0, 0.7],
    )
    columns = [tf.constant(x[:, None]) for x in (mean, deviation**2, root**2)]
    value = predict_log_density(_Energy(scale[:, None]), tf.zeros([300, 1], tf.float64), *columns)
    f = np.sqrt(root**2 + 12.0 * scale) * np.linspace(-1.0, 1.0, 40_001)[:, None]
    terms = norm.logpdf(root**2, f**2, scale) + norm.logpdf(f, mean, deviation)
    exact = logsumexp(terms, axis=0) + np.log(f[1] - f[0])
    counts = exact > -50.0
    np.testing.assert_allclose(value.numpy()[counts], exact[counts], atol=3e-3)


@pytest.mark.parametrize(("df", "variance"), [(1.5, np.inf), (2.0, np.inf), (4.0, 2.0 + 0.5)])
def test_heavy_tails_have_no_finite_variance(df: float, variance: float) -> None:
    mean = tf.constant([[0.3], [-2.0]], tf.float64)
    moments = predict_mean_and_var(StudentT(1.0, df=df), mean, mean, tf.zeros_like(mean) + 0.5)
    np.testing.assert_allclose(moments[0], mean)
    np.testing.assert_allclose(moments[1], tf.fill([2, 1], variance), rtol=1e-6)


def test_far_outliers_have_a_density() -> None:
    """Where no node of a fixed rule sees both the normal and the likelihood."""
    X, zero = tf.zeros([1, 1], tf.float64), tf.zeros([1, 1], tf.float64)
    likelihood = Poisson(invlink=lambda f: tf.exp(f))
    value = float(predict_log_density(likelihood, X, zero, zero + 0.25, zero + 1000.0))
    f = np.linspace(0, 10, 200001)
    log_p = scalar_log_prob(likelihood, X, f[:, None], np.full([len(f), 1], 1000.0)).numpy()[:, 0]
    terms = log_p - 0.5 * f**2 / 0.25 - 0.5 * np.log(2 * np.pi * 0.25)
    assert value == pytest.approx(np.logaddexp.reduce(terms) + np.log(f[1]), rel=1e-8)


def test_what_a_likelihood_does_itself_it_goes_on_doing() -> None:
    X, mean = tf.zeros([3, 2], tf.float64), tf.constant([[0.1], [0.2], [-0.4]], tf.float64)
    variance, Y = tf.ones_like(mean), tf.constant([[1.0], [2.0], [1.0]], tf.float64)

    class Own(Laplace):
        def _variational_expectations(self, X: Any, Fmu: Any, Fvar: Any, Y: Any) -> tf.Tensor:
            return tf.reduce_sum(Fmu, axis=-1)

        def predict_log_density(self, X: Any, Fmu: Any, Fvar: Any, Y: Any) -> tf.Tensor:
            return tf.reduce_sum(Fvar, axis=-1)

    np.testing.assert_array_equal(variational_expectations(Own(), X, mean, variance, Y), mean[:, 0])
    np.testing.assert_array_equal(predict_log_density(Own(), X, mean, variance, Y), variance[:, 0])
    fine = gpflow.quadrature.NDiagGHQuadrature(1, 7)
    for likelihood in (Gaussian(0.3), Poisson(), Gamma(), Exponential(), StudentT(quadrature=fine)):
        np.testing.assert_array_equal(
            variational_expectations(likelihood, X, mean, variance, Y),
            likelihood.variational_expectations(X, mean, variance, Y),
        )
    two = tf.concat([mean, mean], axis=1)
    heteroskedastic = HeteroskedasticTFPConditional(tfp.distributions.Normal)
    np.testing.assert_array_equal(
        variational_expectations(heteroskedastic, X, two, tf.ones_like(two), Y),
        heteroskedastic.variational_expectations(X, two, tf.ones_like(two), Y),
    )
    classes = tf.constant([[0], [1], [1]], tf.int64)
    np.testing.assert_array_equal(
        log_prob(Softmax(2), X, two, classes), Softmax(2).log_prob(X, two, classes)
    )


@pytest.mark.parametrize("correlation", [None, 0.0, 0.7])
@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.1])
def test_normal_observations_of_which_the_scale_is_a_function_too(
    alpha: float, correlation: float | None
) -> None:
    """However narrow they are: against a dense sum over scales, of closed forms."""
    likelihood = HeteroskedasticTFPConditional(scale_transform=tfp.bijectors.Exp())
    mean = np.array([[0.3, -4.0], [0.3, -4.0], [-1.0, 0.5], [0.2, -1.0]])
    variance = np.array([[0.5, 0.01], [0.0, 0.5], [2.0, 1.0], [0.8, 1e-12]])
    y = np.array([[0.7], [0.31], [3.0], [0.1]])
    covariance = variance
    if correlation is not None:
        covariance = np.stack([np.diag(v) for v in variance])
        covariance[:, 0, 1] = covariance[:, 1, 0] = correlation * np.sqrt(variance.prod(axis=1))
    z = np.linspace(-9.0, 9.0, 4001)
    expected = []
    for m, v, observed in zip(mean, variance, y[:, 0]):
        g = m[1] + np.sqrt(v[1]) * z
        s = np.exp(2.0 * g)
        centre = m[0] + (correlation or 0.0) * np.sqrt(v[0]) * z
        spread = v[0] * (1.0 - (correlation or 0.0) ** 2)
        # The integral over f of N(y; f, s)^alpha N(f; centre, spread), normal in f.
        log_f = 0.5 * (1.0 - alpha) * np.log(2.0 * np.pi * s) - 0.5 * np.log(alpha)
        log_f += norm.logpdf(observed, centre, np.sqrt(spread + s / alpha))
        log_w = norm.logpdf(z) + np.log(z[1] - z[0])
        expected.append(logsumexp(log_f + log_w) / alpha)
    X = tf.zeros([4, 1], tf.float64)
    arguments = X, tf.constant(mean), tf.constant(covariance), tf.constant(y)
    actual = log_normaliser(likelihood, *arguments, alpha)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)
    if alpha == 1 and correlation is None:
        np.testing.assert_array_equal(predict_log_density(likelihood, *arguments), actual)
    slopes = tfp.math.value_and_gradient(
        lambda m, v: log_normaliser(likelihood, X, m, v, arguments[3], alpha), arguments[1:3]
    )[1]
    assert all(np.isfinite(slope).all() for slope in slopes)


def test_other_distributions_with_a_scale_are_left_to_gpflow() -> None:
    X, two = (
        tf.zeros([3, 1], tf.float64),
        tf.constant([[0.1, 0.2], [0.3, -1.0], [0.0, 0.0]], tf.float64),
    )
    Y, variance = tf.ones([3, 1], tf.float64), 0.1 * tf.ones_like(two)
    fine = gpflow.quadrature.NDiagGHQuadrature(2, 7)
    for likelihood in (
        HeteroskedasticTFPConditional(tfp.distributions.Laplace),
        HeteroskedasticTFPConditional(quadrature=fine),
    ):
        np.testing.assert_array_equal(
            predict_log_density(likelihood, X, two, variance, Y),
            likelihood.predict_log_density(X, two, variance, Y),
        )


@pytest.mark.parametrize(
    "make, location, factor",
    [
        (lambda loc, scale: tfp.distributions.Normal(tf.exp(loc), scale), np.exp, 1.0),
        (lambda loc, scale: tfp.distributions.Normal(loc, 2.0 * scale), np.asarray, 2.0),
    ],
    ids=["another location", "another scale"],
)
def test_what_makes_a_normal_may_move_it(
    make: Callable[..., Any], location: Callable[..., Any], factor: float
) -> None:
    """Against a dense grid of both functions: GPflow calls any function of a location and a scale."""
    likelihood = HeteroskedasticTFPConditional(make, scale_transform=tfp.bijectors.Exp())
    mean, variance, Y = np.array([[0.5, -0.3]]), np.array([[0.2, 0.1]]), np.array([[1.2]])
    z = np.linspace(-8.0, 8.0, 801)
    share = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    f, g = (mean[0, p] + np.sqrt(variance[0, p]) * z for p in (0, 1))
    densities = norm.pdf(Y[0, 0], location(f)[:, None], factor * np.exp(g))
    expected = np.log(share @ densities @ share)
    arguments = likelihood, mean, mean, variance, Y
    np.testing.assert_allclose(predict_log_density(*arguments), [expected], atol=1e-4)
    np.testing.assert_allclose(log_normaliser(*arguments), [expected], atol=1e-4)


def test_what_makes_a_distribution_may_be_any_callable() -> None:
    likelihood = HeteroskedasticTFPConditional(tfp.distributions.Normal)
    F, Y = np.array([[0.5, -0.3]]), np.array([[1.2]])
    expected = predict_log_density(likelihood, F, F, 0.0 * F + 0.1, Y)
    likelihood.conditional_distribution = partial(likelihood.conditional_distribution)
    actual = predict_log_density(likelihood, F, F, 0.0 * F + 0.1, Y)
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_degrees_of_freedom_may_be_trained() -> None:
    """In GPflow's place of a number a parameter does as well, compiled too."""
    F = tf.zeros([3, 1], tf.float64)
    for df in (4.0, 1.5):
        fixed = StudentT(scale=0.1, df=df)
        trained = StudentT(0.1, gpflow.Parameter(df, transform=gpflow.utilities.positive()))
        for function in (predict_mean_and_var, tf.function(predict_mean_and_var)):
            np.testing.assert_allclose(
                np.stack(function(trained, F, F, F + 1.0)),
                np.stack(predict_mean_and_var(fixed, F, F, F + 1.0)),
                rtol=1e-12,
            )


def test_methods_that_a_likelihood_lacks_are_named() -> None:
    class Bare(gpflow.likelihoods.Likelihood):
        def __init__(self) -> None:
            super().__init__(input_dim=None, latent_dim=2, observation_dim=1)

        def _log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(F, axis=-1)

        def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
            raise NotImplementedError

        _conditional_variance = _conditional_mean

        def _variational_expectations(
            self, X: tf.Tensor, Fmu: tf.Tensor, Fvar: tf.Tensor, Y: tf.Tensor
        ) -> tf.Tensor:
            raise NotImplementedError

        _predict_log_density = _variational_expectations

        def _predict_mean_and_var(self, X: tf.Tensor, Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
            raise NotImplementedError("of no use")

    F = np.zeros([3, 2])
    for function in (variational_expectations, predict_log_density):
        with pytest.raises(NotImplementedError, match=f"method {function.__name__}.*got Bare"):
            function(Bare(), F, F, F, F[:, :1])
    with pytest.raises(NotImplementedError, match="^of no use"):
        predict_mean_and_var(Bare(), F, F, F)


def test_switched_likelihoods_are_asked_one_by_one() -> None:
    parts = [StudentT(0.02), Bernoulli(invlink=probit)]
    switched = SwitchedLikelihood(parts)
    X, mean = tf.zeros([4, 1], tf.float64), tf.constant([[0.1], [9.0], [-0.4], [2.0]], tf.float64)
    variance, y = 4.0 * tf.ones_like(mean), tf.constant([[0.3], [0.0], [0.5], [1.0]], tf.float64)
    which = tf.constant([[0.0], [1.0], [0.0], [1.0]], tf.float64)
    for alpha in (0.0, 0.5, 1.0):
        actual = log_normaliser(switched, X, mean, variance, tf.concat([y, which], axis=1), alpha)
        each = [log_normaliser(part, X, mean, variance, y, alpha) for part in parts]
        np.testing.assert_allclose(actual, tf.where(which[:, 0] == 0, *each))
    columns = predict_mean_and_var(switched, X, mean, variance)[0]
    np.testing.assert_allclose(columns[:, 1:], predict_mean_and_var(parts[1], X, mean, variance)[0])


def test_arrays_do_for_tensors() -> None:
    arrays = np.zeros([2, 1]), np.array([[0.1], [0.4]]), np.array([[0.5], [2.0]]), np.ones([2, 1])
    tensors = [tf.constant(array) for array in arrays]
    for likelihood in (Gaussian(0.3), Poisson(), StudentT(0.02), Bernoulli()):
        for function in (variational_expectations, predict_log_density, log_normaliser):
            np.testing.assert_array_equal(
                function(likelihood, *arrays), function(likelihood, *tensors)
            )
        for one, other in zip(
            predict_mean_and_var(likelihood, *arrays[:3]),
            predict_mean_and_var(likelihood, *tensors[:3]),
        ):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("num_classes", [1, 3])
def test_classes_of_any_type(num_classes: int) -> None:
    rng = np.random.default_rng(5)
    X, mean = np.zeros([4, 1]), rng.standard_normal((4, num_classes))
    Y, noise = rng.integers(0, num_classes, size=(4, 1)), rng.standard_normal((8, num_classes))
    normaliser = partial(log_normaliser, noise=noise)
    switched = SwitchedLikelihood([Softmax(num_classes)])
    for function in (variational_expectations, predict_log_density, normaliser):
        expected = function(Softmax(num_classes), X, mean, 0.3 + 0.0 * mean, Y)
        for dtype in (np.int32, np.uint8, np.float32, np.float64):
            actual = function(Softmax(num_classes), X, mean, 0.3 + 0.0 * mean, Y.astype(dtype))
            np.testing.assert_array_equal(actual, expected)
        which = np.hstack([Y, 0 * Y]).astype(float)
        actual = function(switched, X, mean, 0.3 + 0.0 * mean, which)
        np.testing.assert_allclose(actual, expected)


def test_log_densities_are_asked_for_so_often_and_no_more() -> None:
    calls: list[int] = []

    class Counting(Laplace):
        def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> tf.Tensor:
            calls.append(F.shape[0])
            return super()._scalar_log_prob(X, F, Y)

    X, zero = tf.zeros([1, 1], tf.float64), tf.zeros([1, 1], tf.float64)
    for function, variance, limit in (
        (variational_expectations, 1e-6, 26 + 10 + 48),  # smooth, as far as the normal reaches
        (variational_expectations, 100.0, 26 + 5 * 10 + 48),
        (predict_log_density, 100.0, 279),
    ):
        calls.clear()
        function(Counting(), X, zero, zero + variance, zero + 0.3)
        assert sum(calls) <= limit


@pytest.mark.parametrize("label", [0.0, 1.0, 2.0, 3.0])
def test_ordinal_bins_at_the_ends(label: float) -> None:
    """GPflow's probabilities, whatever TensorFlow makes of the error function of infinity."""
    likelihood = Ordinal(np.array([-1.0, 0.0, 1.5]))
    F = tf.constant(np.linspace(-3, 3, 7)[:, None])
    phi = ordinal_probabilities(likelihood, F)[:, 0]
    edges = np.array([-np.inf, -1.0, 0.0, 1.5, np.inf])
    cumulative = norm.cdf(edges - F.numpy()) * (1 - 2e-3) + 1e-3
    np.testing.assert_allclose(phi, np.diff(cumulative, axis=1), atol=1e-12)
    log_p = scalar_log_prob(likelihood, F, F, tf.fill(F.shape, tf.cast(label, tf.float64)))
    np.testing.assert_allclose(log_p[:, 0], np.log(phi[:, int(label)] + 1e-6), rtol=1e-10)
    mean, variance = predict_mean_and_var(
        likelihood, F, F, tf.fill(F.shape, tf.cast(1e-8, F.dtype))
    )
    np.testing.assert_allclose(mean[:, 0], phi.numpy() @ np.arange(4.0), rtol=1e-5)
    assert (variance.numpy() > 0).all()
