"""Amortised layers against dense linear algebra, point by point, and their networks."""

from __future__ import annotations

import copy
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras
from hypothesis import given
from hypothesis import strategies as st

import gpflow_deep as gd
from gpflow_deep.layers.amortized import _inverse
from gpflow_deep.numerics.linalg import squared_distances, squared_norms

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 2))


def _layer(full: bool = False, **settings: Any) -> gd.layers.AmortizedGPLayer:
    kernel = gd.kernels.StackedStationary(3, variance=[0.5, 1.0, 2.0], lengthscales=[0.7, 1.5, 3.0])
    mean = gpflow.functions.Linear(RNG.normal(size=(2, 3)), RNG.normal(size=3))
    return gd.layers.AmortizedGPLayer(kernel, 4, 2, 3, mean, full_covariance=full, **settings)


def _dense(layer: gd.layers.AmortizedGPLayer, xi: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    """Mean, variance and KL of each GP at x, with the inducing outputs of xi, by explicit inverses."""
    Z, mu, scale = (part[0].numpy() for part in layer.variational_parameters(xi[None]))
    result = []
    for t, kernel in enumerate(layer.kernel.latent_kernels):
        S = scale[t] @ scale[t].T if layer.full_covariance else np.diag(scale[t] ** 2)
        K = kernel(Z).numpy() + 1e-6 * np.eye(len(Z))
        alpha = np.linalg.inv(K) @ kernel(Z, x[None]).numpy()[:, 0]
        residual = mu[t] - layer.mean_function(Z).numpy()[:, t]
        mean = layer.mean_function(x[None]).numpy()[0, t] + alpha @ residual
        variance = kernel(x[None]).numpy()[0, 0] - alpha @ K @ alpha + alpha @ S @ alpha
        kl = np.trace(np.linalg.solve(K, S)) + residual @ np.linalg.solve(K, residual) - len(Z)
        kl += np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1]
        result.append([mean, variance, 0.5 * kl])
    return np.array(result).T


@pytest.mark.parametrize("full", [False, True])
def test_moments_and_divergences_are_those_of_dense_algebra(full: bool) -> None:
    layer = _layer(full)
    F = RNG.normal(size=(3, 5, 2))
    local = layer.infer(X)
    mean, variance = layer.condition(F, local)
    for n in range(5):
        for s in range(3):
            expected = _dense(layer, X[n], F[s, n])
            np.testing.assert_allclose(mean[s, n], expected[0], rtol=1e-7)
            np.testing.assert_allclose(variance[s, n], expected[1], rtol=1e-7)
            np.testing.assert_allclose(local.kl[n], expected[2], rtol=1e-7)


def test_a_posterior_that_is_the_prior_has_no_divergence() -> None:
    """And the function values have the prior's moments."""
    layer = _layer(full=True)
    Z = layer.variational_parameters(X)[0]
    K = layer.kernel.local(Z, Z)
    K = tf.linalg.set_diag(K, tf.linalg.diag_part(K) + 1e-6)
    prior = tf.linalg.matrix_transpose(layer.mean_function(Z)), tf.linalg.cholesky(K)
    layer.variational_parameters = lambda _: (Z, *prior)
    local = layer.infer(X)
    np.testing.assert_allclose(local.kl, 0.0, atol=1e-8)
    mean, variance = layer.condition(X[None], local)
    np.testing.assert_allclose(mean[0], layer.mean_function(X), rtol=1e-9)
    np.testing.assert_allclose(variance, np.broadcast_to([0.5, 1.0, 2.0], (1, 5, 3)), rtol=1e-9)


@given(shift=st.floats(-3, 3), scale=st.floats(0.1, 3))
def test_divergences_are_not_negative(shift: float, scale: float) -> None:
    local = _layer().infer(shift + scale * X)
    assert local.kl.shape == (5, 3)
    assert np.min(local.kl) >= 0.0


@pytest.mark.parametrize("full", [False, True])
def test_a_deviation_of_zero_has_a_finite_divergence_and_gradient(full: bool) -> None:
    """A softplus of very negative numbers is zero, in float32 from -104 on, and training goes there."""
    layer = _layer(full)
    bias = layer.networks[-1].b[-1]
    bias.assign(tf.fill(bias.shape, tf.constant(0.0 if full else -1000.0, bias.dtype)))
    if full:
        layer.networks[-1].W[-1].assign(tf.zeros_like(layer.networks[-1].W[-1]))
    with tf.GradientTape() as tape:
        kl = tf.reduce_sum(layer.infer(X).kl)
    assert not np.any(layer.variational_parameters(X)[2])
    gradients = tape.gradient(kl, layer.trainable_variables, unconnected_gradients="zero")
    assert np.isfinite(kl) and all(np.isfinite(gradient).all() for gradient in gradients)


def test_initial_values_are_the_papers() -> None:
    """Maps that can be inverted; means and deviations that do not depend on the inducing point."""
    layer = _layer()
    Z, mean, sd = layer.variational_parameters(X)
    np.testing.assert_allclose(Z, X[:, None] + layer.networks[0].b, rtol=1e-12)
    for values in (mean, sd):
        assert values.shape == (5, 3, 4)
        np.testing.assert_allclose(values, np.broadcast_to(values[..., :1], values.shape))
        assert np.ptp(values[:, 0, 0]) > 1e-3  # but on the input
    assert [w.shape for w in layer.networks[1].W] == [(2, 2, 2), (2, 2, 2), (2, 2, 12)]


def test_a_networks_value_is_that_of_its_affine_maps() -> None:
    network = gd.layers.MLP([2, 3, 4], num_networks=2, seed=1)
    expected = []
    for k in range(2):
        hidden = X @ network.W[0].numpy()[k] + network.b[0].numpy()[k]
        hidden = np.where(hidden > 0, hidden, 0.2 * hidden)
        expected.append(hidden @ network.W[1].numpy()[k] + network.b[1].numpy()[k])
    np.testing.assert_allclose(network(X), np.concatenate(expected, axis=1), rtol=1e-12)


NETWORKS = {
    "Keras 3": lambda: keras.Sequential(
        [keras.layers.Dense(5, "tanh", dtype="float64"), keras.layers.Dense(32, dtype="float64")]
    ),
    "tf_keras": lambda: tf_keras.Sequential(
        [
            tf_keras.layers.Dense(5, "tanh", dtype="float64"),
            tf_keras.layers.Dense(32, dtype="float64"),
        ]
    ),
    "several": lambda: [
        gd.layers.AffineMaps(2, 4),
        keras.layers.Dense(12, dtype="float64"),
        gd.layers.MLP([2, 12]),
    ],
}


@pytest.mark.parametrize("name", NETWORKS)
def test_any_network_is_accepted_and_trained(name: str) -> None:
    layer = _layer(networks=NETWORKS[name]())
    kernels_and_mean = 4
    assert len(layer.trainable_variables) == kernels_and_mean + {"several": 6}.get(name, 4)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layer.infer(X).kl) + tf.reduce_sum(layer.mean_function(X))
    assert all(g is not None for g in tape.gradient(value, layer.trainable_variables))
    other = copy.deepcopy(layer)
    np.testing.assert_array_equal(other.infer(X).kl, layer.infer(X).kl)
    for variable in other.trainable_variables:
        variable.assign_add(tf.ones_like(variable))
    assert np.abs(other.infer(X).kl - layer.infer(X).kl).max() > 1e-3


def test_prior_draws_have_the_priors_moments() -> None:
    """Of ordinary layers jointly over the points, of amortised ones point by point."""
    kernel = gpflow.kernels.SquaredExponential(variance=1.5)
    mean = gpflow.functions.Constant([1.0, -1.0])
    plain = gd.layers.GPLayer(kernel, X, 2, mean)
    amortized = gd.layers.AmortizedGPLayer(kernel, 4, 2, 2, mean)
    inputs = np.broadcast_to(X[:3], (4000, 3, 2))
    noise = tf.random.stateless_normal([4000, 3, 2], [0, 1], dtype=tf.float64)
    for layer, covariance in ((plain, kernel(X[:3])), (amortized, 1.5 * np.eye(3))):
        draws = layer.sample_prior(inputs, noise).numpy()
        np.testing.assert_allclose(draws.mean(0), [[1.0, -1.0]] * 3, atol=0.08)
        for t in range(2):
            np.testing.assert_allclose(np.cov(draws[..., t].T), covariance, atol=0.15)


def test_inverse_factor() -> None:
    """Values, and first and second derivatives of TensorFlow's own factorisation and inverse."""
    root = RNG.normal(size=(3, 4, 4))
    K = tf.constant(root @ root.transpose(0, 2, 1) + np.eye(4))
    weights = tf.constant(RNG.normal(size=(3, 4, 4)))

    def derivatives(function: Any) -> list[tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch(K)
            with tf.GradientTape() as inner:
                inner.watch(K)
                value = function(0.5 * (K + tf.linalg.matrix_transpose(K)))
                total = tf.reduce_sum(weights * value**2)
            first = inner.gradient(total, K)
            size = tf.reduce_sum(tf.sin(first))
        return [value, first, outer.gradient(size, K)]

    ours = derivatives(lambda A: _inverse(A, tf.linalg.cholesky(A)))
    for actual, expected in zip(
        ours, derivatives(lambda A: tf.linalg.inv(tf.linalg.cholesky(A))), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-10)


def test_squares_and_their_derivatives() -> None:
    A, B = tf.constant(RNG.normal(size=(2, 3, 4))), tf.constant(RNG.normal(size=(2, 5, 4)))
    weights = tf.constant(RNG.normal(size=(2, 3, 5)))

    def derivatives(distances: Any, norms: Any) -> list[tf.Tensor]:
        with tf.GradientTape(persistent=True) as outer:
            outer.watch([A, B])
            with tf.GradientTape() as inner:
                inner.watch([A, B])
                value = tf.reduce_sum(weights * tf.sin(distances(A, B)))
                value += tf.reduce_sum(tf.sin(norms(A)))
            first = inner.gradient(value, [A, B])
            size = tf.reduce_sum(first[0] ** 2) + tf.reduce_sum(first[1] ** 2)
        return [value, *first, *outer.gradient(size, [A, B])]

    plain = derivatives(
        lambda a, b: tf.reduce_sum((a[:, :, None] - b[:, None]) ** 2, -1),
        lambda a: tf.reduce_sum(a**2, -1),
    )
    for actual, expected in zip(derivatives(squared_distances, squared_norms), plain, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_inducing": 0}, ValueError, "num_inducing: expected a positive integer, got 0"),
        ({"input_dim": 2.5}, ValueError, "input_dim: expected a positive integer, got 2.5"),
        (
            {"networks": 3},
            TypeError,
            "networks: expected callable tf.Modules or Keras layers, got 3",
        ),
        (
            {"networks": gd.layers.MLP([2, 7])},
            ValueError,
            "expected 16 columns in all, 8 of .*got 7",
        ),
        (
            {"networks": gd.layers.MLP([3, 16])},
            ValueError,
            "MLP does not fit inputs of dimension 2",
        ),
        (
            {"networks": keras.layers.Dense(16, dtype="float32")},
            ValueError,
            "of float64 for inputs.*float32",
        ),
        ({"kernel": gpflow.kernels.Matern52(lengthscales=[1.0, 1.0, 1.0])}, ValueError, "kernel: "),
        ({"mean_function": lambda x: tf.zeros([1, 3])}, ValueError, "expected 1 columns.*got 3"),
    ],
)
def test_bad_input(settings: dict[str, Any], error: type, message: str) -> None:
    good = {"kernel": None, "num_inducing": 4, "input_dim": 2, "num_latent_gps": 1}
    with pytest.raises(error, match=message):
        gd.layers.AmortizedGPLayer(**{**good, **settings})


def test_bad_widths() -> None:
    with pytest.raises(ValueError, match="num_inducing: expected one number, or one for each of 2"):
        gd.layers.build_amortized_layers(3, (4,), num_inducing=(8, 4, 4))
    with pytest.raises(ValueError, match="dims: expected inputs, hidden layers and outputs"):
        gd.layers.MLP([3])
