"""Wishart laws: densities, draws, gradients, divergences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.utilities import positive
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpflow_deep.distributions import Bartlett, InverseWishart
from gpflow_deep.numerics.gamma import gammas_from_normals

_RNG = np.random.default_rng(0)
SCALE = _RNG.standard_normal((3, 3))
SCALE = SCALE @ SCALE.T + np.eye(3)
NORMALS = _RNG.standard_normal((5, 3, 3))


# ---------------------------------------------------------------- gammas


@given(st.floats(0.3, 500.0), st.floats(-6.0, 6.0))
def test_gammas_are_the_quantiles(concentration: float, normal: float) -> None:
    value = gammas_from_normals(tf.constant([concentration], tf.float64), [normal])
    tail = stats.norm.cdf(-abs(normal))
    quantile = stats.gamma.ppf if normal < 0 else stats.gamma.isf
    np.testing.assert_allclose(value, quantile(tail, concentration), rtol=1e-9)


@pytest.mark.parametrize("normal", [-3.0, 0.2, 2.5])
@pytest.mark.parametrize("concentration", [0.7, 1.0, 4.4, 80.0])
def test_gammas_have_the_derivatives_of_the_quantiles(concentration: float, normal: float) -> None:
    a, z = tf.Variable(concentration, dtype=tf.float64), tf.Variable(normal, dtype=tf.float64)
    with tf.GradientTape() as tape:
        value = gammas_from_normals(a, z)
    slopes = tape.gradient(value, [a, z])
    _assert_slopes(lambda a, z: float(gammas_from_normals(a, z)), [a, z], slopes)


@pytest.mark.parametrize("dtype, rtol", [(tf.float64, 1e-6), (tf.float32, 1e-4)])
def test_gammas_of_many_have_the_derivatives_of_the_quantiles(dtype: tf.DType, rtol: float) -> None:
    """By differences; on both sides of where an expansion takes over."""
    numbers = np.r_[150.0, 250.0, 3e3, 6e3, np.geomspace(1e4, 1e8, 5)]
    c, score = (x.ravel() for x in np.meshgrid(numbers, [-4.0, -1.0, -0.1, 0.1, 1.0, 4.0]))
    a, z = (tf.constant(x, dtype) for x in (c, score))
    with tf.GradientTape() as tape:
        tape.watch([a, z])
        values = gammas_from_normals(a, z)
    by_a, by_z = tape.gradient(values, [a, z])

    def quantiles(c: np.ndarray, z: np.ndarray) -> np.ndarray:
        tails = stats.norm.cdf(-np.abs(z))
        return np.where(z < 0.0, stats.gamma.ppf(tails, c), stats.gamma.isf(tails, c))

    np.testing.assert_allclose(values, quantiles(c, score), rtol=rtol)
    ends = (quantiles(c * (1.0 + step), score) for step in (1e-3, -1e-3))
    np.testing.assert_allclose(by_a, np.subtract(*ends) / (2e-3 * c), rtol=rtol)
    ends = (quantiles(c, score + step) for step in (1e-2, -1e-2))
    np.testing.assert_allclose(by_z, np.subtract(*ends) / 2e-2, rtol=rtol)


def test_gammas_in_single_precision() -> None:
    z = np.linspace(-4.0, 4.0, 20)
    single = gammas_from_normals(tf.constant(3.2), tf.constant(z, tf.float32))
    assert single.dtype == tf.float32
    double = gammas_from_normals(tf.constant(3.2, tf.float64), z)
    np.testing.assert_allclose(single, double, rtol=1e-4)


@pytest.mark.parametrize("dtype, rtol", [(tf.float64, 1e-6), (tf.float32, 2e-2)])
@pytest.mark.parametrize("concentration", [0.005, 0.01, 0.02, 0.05, 2e4, 1e6])
def test_gammas_of_next_to_nothing_and_of_many(
    concentration: float, dtype: tf.DType, rtol: float
) -> None:
    """From next to nothing, where the variable itself is below all numbers, to the far upper tail."""
    scores = np.linspace(-5.0, 5.0, 41)
    a, z = (tf.constant(x, dtype) for x in (np.full(41, concentration), scores))
    with tf.GradientTape() as tape:
        tape.watch([a, z])
        values = gammas_from_normals(a, z)
    assert all(np.isfinite(slope).all() for slope in tape.gradient(values, [a, z]))
    tails = stats.norm.cdf(-np.abs(scores))
    quantile = stats.gamma.ppf(tails, concentration), stats.gamma.isf(tails, concentration)
    expected = np.where(scores < 0.0, *quantile)
    np.testing.assert_allclose(
        values, expected, rtol=rtol, atol=np.finfo(dtype.as_numpy_dtype).tiny
    )


@pytest.mark.parametrize("df", [1.005, 1.02])
def test_draws_of_hardly_enough_degrees_of_freedom(df: float) -> None:
    df = tf.Variable(df, dtype=tf.float64)
    with tf.GradientTape() as tape:
        draws = Bartlett(df, size=2).sample(20_000, seed=1)
    assert np.isfinite(draws).all() and np.isfinite(tape.gradient(draws, df))


# ---------------------------------------------------------------- densities


@pytest.mark.parametrize("df", [3.0, 7.3])
def test_density_of_bartlett_is_the_wishart_density_with_its_jacobian(df: float) -> None:
    A = Bartlett(np.float64(df), 3).from_normals(NORMALS)
    wishart = tfp.distributions.WishartTriL(np.float64(df), scale_tril=np.eye(3))
    powers = np.arange(3, 0, -1)
    log_jacobian = 3 * np.log(2.0) + np.log(tf.linalg.diag_part(A)) @ powers
    np.testing.assert_allclose(
        Bartlett(np.float64(df), 3).log_prob(A),
        wishart.log_prob(tf.matmul(A, A, transpose_b=True)) + log_jacobian,
        rtol=1e-9,
    )


@pytest.mark.parametrize("df", [2.5, 3.0, 9.75])
def test_density(df: float) -> None:
    law = InverseWishart(df, np.linalg.cholesky(SCALE))
    X = law.sample(4, seed=1)
    expected = stats.invwishart(df, SCALE).logpdf(np.moveaxis(X.numpy(), 0, -1))
    np.testing.assert_allclose(law.log_prob(X), expected, rtol=1e-9)


# ---------------------------------------------------------------- draws


def test_draws_have_the_law() -> None:
    """Of real degrees of freedom: the inverse has the Wishart's mean, X the inverse Wishart's."""
    law = InverseWishart([8.6, 4.2], np.linalg.cholesky([SCALE, SCALE]))
    X = law.sample(20000, seed=2).numpy()
    assert X.shape == (20000, 2, 3, 3)
    inverse = np.linalg.inv(X)
    error = inverse.std(axis=0) / np.sqrt(20000)
    expected = np.array([8.6, 4.2])[:, None, None] * np.linalg.inv(SCALE)
    assert (np.abs(inverse.mean(axis=0) - expected) < 4.5 * error).all()
    error = X[:, 0].std(axis=0) / np.sqrt(20000)
    assert (np.abs(X[:, 0].mean(axis=0) - law.mean()[0]) < 4.5 * error).all()
    log_det = np.linalg.slogdet(X)[1][:, 0]
    other = np.linalg.slogdet(stats.invwishart(8.6, SCALE).rvs(2000, random_state=0))[1]
    assert stats.ks_2samp(log_det, other).pvalue > 1e-3


def test_gradients_of_draws_and_densities() -> None:
    """In all parameters, by finite differences."""

    def draw_and_density(df: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
        law = InverseWishart(df, tf.linalg.band_part(factor, -1, 0))
        X = law.from_normals(NORMALS)
        return tf.reduce_sum(X * SCALE) + tf.reduce_sum(law.log_prob(0.9 * X + 0.1 * SCALE))

    parameters = [
        tf.Variable(4.4, dtype=tf.float64),
        tf.Variable(np.linalg.cholesky(SCALE)),
    ]
    with tf.GradientTape() as tape:
        value = draw_and_density(*parameters)
    slopes = tape.gradient(value, parameters)
    _assert_slopes(lambda *p: float(draw_and_density(*p)), parameters, slopes)


def test_the_divergence_is_the_average_log_ratio() -> None:
    q = InverseWishart(6.3, np.linalg.cholesky(SCALE))
    p = InverseWishart(4.0, 1.5 * np.eye(3))
    X = q.sample(50000, seed=3)
    ratios = q.log_prob(X) - p.log_prob(X)
    error = np.std(ratios) / np.sqrt(50000)
    divergence = tfp.distributions.kl_divergence(q, p)
    assert abs(divergence - np.mean(ratios)) < 4.5 * error
    np.testing.assert_allclose(tfp.distributions.kl_divergence(q, q), 0.0, atol=1e-12)
    with pytest.raises(ValueError, match="b: expected matrices of size 3 like a's, got 2"):
        tfp.distributions.kl_divergence(q, InverseWishart(4.0, np.eye(2)))


def test_batches_of_degrees_and_of_scales() -> None:
    """They broadcast; every scale has the law that it has alone."""
    factors = np.linalg.cholesky([SCALE, np.eye(3), 2.0 * SCALE])
    df = np.array([[4.5], [7.0]])
    law = InverseWishart(df, factors)
    assert law.batch_shape == (2, 3) and law.mean().shape == (2, 3, 3, 3)
    np.testing.assert_array_equal(law.batch_shape_tensor(), [2, 3])
    X = law.sample(5, seed=1)
    assert X.shape == (5, 2, 3, 3, 3)
    other = InverseWishart(5.0, np.eye(3))
    divergences = tfp.distributions.kl_divergence(law, other)
    for i, j in np.ndindex(2, 3):
        alone = InverseWishart(df[i, 0], factors[j])
        np.testing.assert_allclose(law.log_prob(X)[:, i, j], alone.log_prob(X[:, i, j]))
        np.testing.assert_allclose(law.log_prob(SCALE)[i, j], alone.log_prob(SCALE))
        np.testing.assert_allclose(law.mean()[i, j], alone.mean())
        expected = tfp.distributions.kl_divergence(alone, other)
        np.testing.assert_allclose(divergences[i, j], expected)
    whole = InverseWishart(4, np.eye(2, dtype=int))
    assert whole.sample(seed=1).dtype == tf.float64


@pytest.mark.parametrize(
    "df, scale, message",
    [
        (4.5, SCALE, "scale_tril: expected the Cholesky factor"),
        (4.5, -np.eye(3), "scale_tril: expected the Cholesky factor"),
        (4.5, np.ones(3), r"scale_tril: expected \[..., p, p\]"),
        (
            [4.5, 5.0],
            np.stack([np.eye(3)] * 3),
            r"df: expected a shape that .* \(3,\).* got \(2,\)",
        ),
    ],
)
def test_bad_scales(df: Any, scale: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InverseWishart(df, scale)


def test_degrees_of_freedom_that_are_known_late() -> None:
    @tf.function(autograph=False)
    def density(df: tf.Tensor, validate: bool) -> tf.Tensor:
        law = InverseWishart(df, np.eye(3), validate_args=validate)
        return law.log_prob(np.eye(3))

    few = tf.constant(1.5, tf.float64)
    density(few, False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="df: expected numbers above 2"):
        density(few, True)


def test_inside_a_compiled_function_and_in_single_precision() -> None:
    @tf.function(autograph=False)
    def draws(df: tf.Tensor) -> tf.Tensor:
        return InverseWishart(df, tf.eye(3)).sample(2, seed=[1, 2])

    X = draws(tf.constant(5.5))
    assert X.dtype == tf.float32 and np.linalg.eigvalsh(X).min() > 0


@pytest.mark.parametrize("df", [2.0, [5.0, 1.0], np.nan])
def test_too_few_degrees_of_freedom(df: float) -> None:
    with pytest.raises(ValueError, match="df: expected finite numbers above 2, got"):
        InverseWishart(tf.constant(df, tf.float64), tf.eye(3, dtype=tf.float64))


def _assert_slopes(
    function: Callable[..., float], parameters: list[tf.Variable], slopes: list[tf.Tensor]
) -> None:
    for position, (parameter, slope) in enumerate(zip(parameters, slopes, strict=True)):
        values = [p.numpy() for p in parameters]
        direction = np.tril(np.ones(parameter.shape)) if parameter.shape.rank else 1.0
        ends = []
        for step in (1e-6, -1e-6):
            values[position] = parameter.numpy() + step * direction
            ends.append(function(*map(tf.constant, values)))
        np.testing.assert_allclose(
            np.sum(slope * direction), (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8
        )


def test_whole_degrees_of_freedom_are_real_numbers() -> None:
    whole = Bartlett(5, 2).sample(3, seed=[1, 2])
    real = Bartlett(np.float64(5.0), 2).sample(3, seed=[1, 2])
    np.testing.assert_array_equal(whole, real)


# ---------------------------------------------------------------- as tfp's own distributions


def _laws(df: Any) -> list[Any]:
    """Of matrices of size 3."""
    scales = np.linalg.cholesky(np.stack([np.eye(3), SCALE, 2.0 * SCALE]))
    return [Bartlett(df, 3), InverseWishart(df, scales)]


@pytest.mark.parametrize("kind", [tf.Variable, lambda x: gpflow.Parameter(x, transform=positive())])
@pytest.mark.parametrize("law", [0, 1])
def test_variables_are_followed_and_have_gradients(kind: Callable[..., Any], law: int) -> None:
    df, root = kind(np.float64(5.0)), tf.Variable(np.linalg.cholesky(SCALE))
    D = [Bartlett(df, 3), InverseWishart(df, root)][law]
    value = D.sample(seed=3)
    for of in (lambda D: D.log_prob(value), lambda D: tf.reduce_sum(D.sample(seed=1))):
        with tf.GradientTape() as tape:
            objective = of(D)
        gradients = tape.gradient(objective, D.trainable_variables)
        assert len(gradients) == 1 + law
        assert all(np.abs(gradient).max() > 0.0 for gradient in gradients)
    df.assign(9.0)
    root.assign(2.0 * root)
    now = _law(law, 9.0, root.numpy())
    np.testing.assert_allclose(D.log_prob(value), now.log_prob(value), rtol=1e-12)
    np.testing.assert_allclose(D.sample(seed=(1, 2)), now.sample(seed=(1, 2)), rtol=1e-12)
    np.testing.assert_allclose(D.mean(), now.mean(), rtol=1e-12)


def _law(law: int, df: float, root: np.ndarray) -> Any:
    df = tf.constant(df, tf.float64)
    return [Bartlett(df, 3), InverseWishart(df, root)][law]


def test_a_variable_that_cannot_be_degrees_of_freedom() -> None:
    with pytest.raises(ValueError, match="df: expected finite numbers above 2, got"):
        Bartlett(tf.Variable(1.0), 3)


@pytest.mark.parametrize("law", [0, 1])
def test_moments_and_mode(law: int) -> None:
    """Of draws; the mode by the density around it."""
    D = _laws(tf.constant([[14.0], [25.5]], tf.float64))[law]
    draws = D.sample(100_000, seed=1).numpy()
    deviation = D.stddev().numpy()
    assert deviation.shape == draws.shape[1:] and (deviation >= 0.0).all()
    error = deviation / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - D.mean()) <= 5.0 * error).all()
    np.testing.assert_allclose(draws.std(axis=0), deviation, rtol=0.05)
    mode, rng = D.mode().numpy(), np.random.default_rng(0)
    for _ in range(20):
        other = 1e-3 * rng.normal(size=(3, 3))
        other = np.tril(other) if law == 0 else other + other.T
        assert (D.log_prob(mode + other) < D.log_prob(mode)).numpy().all()


def test_variance_is_infinite_or_none_where_tails_are_heavy() -> None:
    D = InverseWishart(tf.constant([5.9, 6.1], tf.float64), np.eye(3))
    assert np.isnan(D.variance()[0]).all() and np.isfinite(D.variance()[1]).all()


@pytest.mark.parametrize("law", [0, 1])
def test_parts_of_a_batch(law: int) -> None:
    D = _laws(tf.constant([[5.0], [6.0]], tf.float64))[law]
    value = D.sample(seed=0)
    whole = D.log_prob(value)
    np.testing.assert_allclose(D[1].log_prob(value[1]), whole[1], rtol=1e-12)
    np.testing.assert_allclose(
        D[..., -1].log_prob(value[..., -1, :, :]), whole[..., -1], rtol=1e-12
    )
    assert D.copy(validate_args=True).batch_shape == D.batch_shape


@pytest.mark.parametrize("law", [0, 1])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_bijectors_lead_to_the_values(law: int, dtype: tf.DType) -> None:
    D = [
        Bartlett(tf.constant(5.0, dtype), 3),
        InverseWishart(tf.constant(5.0, dtype), tf.eye(3, dtype=dtype)),
    ][law]
    bijector = D.experimental_default_event_space_bijector()
    value = D.sample(4, seed=0)
    flat = bijector.inverse(value)
    assert flat.shape == (4, 6) and flat.dtype == dtype
    np.testing.assert_allclose(bijector.forward(tf.identity(flat)), value, rtol=1e-4, atol=1e-4)
    properties = type(D).parameter_properties(dtype=dtype)
    if law == 1:
        bijector = properties["scale_tril"].default_constraining_bijector_fn()
        root = bijector.forward(tf.ones(6, dtype))
        assert InverseWishart(tf.constant(5.0, dtype), root).sample(seed=0).dtype == dtype


@pytest.mark.parametrize("law", [0, 1])
def test_a_value_of_another_size_is_told(law: int) -> None:
    D = _laws(tf.constant(5.0, tf.float64))[law]
    with pytest.raises(ValueError, match=r"value: expected matrices \[..., 3, 3\], got \(2, 2\)"):
        D.log_prob(np.eye(2))
