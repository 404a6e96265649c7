"""Covariances with the short cut for squared exponentials are GPflow's, in value and gradient."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.keras import tf_keras
from gpflow.kernels import Kernel, SquaredExponential, White

from gpflow_deep.layers import covariances

X = np.random.default_rng(0).standard_normal((7, 3))
Z = np.random.default_rng(1).standard_normal((4, 3))
SHORT_CUTS: dict[str, Callable[[], Kernel]] = {
    "isotropic": lambda: SquaredExponential(1.3, 0.7),
    "ard": lambda: SquaredExponential(0.4, [0.5, 1.0, 2.0]),
    "active dims": lambda: SquaredExponential(0.4, [0.5, 2.0], active_dims=[2, 0]),
    "active slice": lambda: SquaredExponential(1.3, 0.7, active_dims=slice(1, 3)),
    "white": lambda: SquaredExponential(1.3, 0.7) + White(0.1),
    "two whites": lambda: White(0.2) + SquaredExponential(1.3, [0.5, 1.0, 2.0]) + White(0.1),
}
OTHERS: dict[str, Callable[[], Kernel]] = {
    "two of them": lambda: SquaredExponential(1.3, 0.7) + SquaredExponential(0.3, 0.2),
    "product": lambda: SquaredExponential(1.3, 0.7) * White(0.1),
    "subclass": lambda: _Doubled(1.3, 0.7),
    "matern": lambda: gpflow.kernels.Matern52(1.3, 0.7),
    "white alone": lambda: White(0.1),
}
KERNELS = {**SHORT_CUTS, **OTHERS}


class _Doubled(SquaredExponential):
    """Its covariance is not that of its parent."""

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return 2.0 * super().K_r2(r2)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return 2.0 * super().K_diag(X)


def _values_and_gradients(
    function: Callable[[InducingPoints, tf.Tensor], tf.Tensor], kernel: Kernel
) -> list[tf.Tensor]:
    """Of a weighted sum of covariances: values, and gradients to parameters, inducing inputs, inputs."""
    inducing_variable = InducingPoints(Z)
    inputs = tf.constant(X, gpflow.default_float())
    variables = [*kernel.trainable_variables, *inducing_variable.trainable_variables, inputs]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        K = tf.cast(function(inducing_variable, inputs), tf.float64)
        weights = np.random.default_rng(2).standard_normal(K.shape)
        total = tf.reduce_sum(K * weights)
    gradients = tape.gradient(total, variables, unconnected_gradients="zero")
    return [K, *(tf.convert_to_tensor(g) for g in gradients)]


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("name", KERNELS)
def test_equal_to_gpflow(name: str, precision: type) -> None:
    kernel, single = KERNELS[name](), KERNELS[name]()
    expected_Kuf = _values_and_gradients(
        lambda iv, x: gpflow.covariances.Kuf(iv, kernel, x), kernel
    )
    expected_Kuu = _values_and_gradients(
        lambda iv, _: gpflow.covariances.Kuu(iv, kernel, jitter=1e-3), kernel
    )
    if precision == np.float32:
        gpflow.config.set_default_float(np.float32)
        single = KERNELS[name]()
    actual_Kuf = _values_and_gradients(lambda iv, x: covariances.Kuf(iv, single, x), single)
    actual_Kuu = _values_and_gradients(lambda iv, _: covariances.Kuu(iv, single, 1e-3), single)
    tolerance = 1e-12 if precision == np.float64 else 2e-5
    for actual, expected in [(actual_Kuf, expected_Kuf), (actual_Kuu, expected_Kuu)]:
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", KERNELS)
def test_prior_variance_is_the_diagonal(name: str) -> None:
    kernel = KERNELS[name]()
    variance = covariances.prior_variance(kernel, tf.constant(X))
    assert variance.shape == (7, 1)
    np.testing.assert_allclose(variance[:, 0], np.diag(kernel(X)), rtol=1e-12)


def test_far_from_the_origin() -> None:
    """The logarithm of the covariance is a sum of large terms that cancel: not of the inputs' offset."""
    kernel = SquaredExponential(1.3, 0.7)
    for offset, precision, tolerance in ((1e4, np.float64, 1e-11), (1e3, np.float32, 1e-3)):
        gpflow.config.set_default_float(precision)
        kernel = SquaredExponential(1.3, 0.7)
        x, z = (X + offset).astype(precision), (Z + offset).astype(precision)
        actual = covariances.Kuf(InducingPoints(z), kernel, tf.constant(x))
        squares = np.sum((z[:, None].astype(float) - x.astype(float)) ** 2, axis=-1) / 0.7**2
        np.testing.assert_allclose(actual, 1.3 * np.exp(-0.5 * squares), rtol=tolerance, atol=1e-7)


def test_inputs_far_from_the_inducing_inputs_have_no_covariance() -> None:
    kernel = SquaredExponential(1.0, 0.1)
    K = covariances.Kuf(InducingPoints(Z), kernel, tf.constant(1e6 * X))
    np.testing.assert_array_equal(K, np.zeros((4, 7)))


@pytest.mark.parametrize("precision", [np.float64, np.float32])
def test_covariance_of_inducing_variables_is_in_double_and_never_above_the_variance(
    precision: type,
) -> None:
    """Rounding must not make K_MM indefinite: nearby inducing inputs in either precision."""
    gpflow.config.set_default_float(precision)
    near = np.linspace(0.0, 0.1, 20)[:, None].astype(precision)
    K = covariances.Kuu(InducingPoints(near), SquaredExponential(1.0, 1.0), 1e-6)
    assert K.dtype == tf.float64
    np.testing.assert_allclose(K, tf.transpose(K), rtol=0, atol=0)
    assert np.linalg.eigvalsh(K).min() > 0.9e-6


def test_a_shared_kernel_has_one_covariance() -> None:
    kernel = SquaredExponential(1.3, 0.7)
    shared = gpflow.kernels.SharedIndependent(kernel, 2)
    shared_inputs = SharedIndependentInducingVariables(InducingPoints(Z))
    for inducing_variable in (InducingPoints(Z), shared_inputs):
        Kuf = covariances.Kuf(inducing_variable, shared, tf.constant(X))
        np.testing.assert_allclose(Kuf, kernel(Z, X), rtol=1e-12)
        Kuu = covariances.Kuu(inducing_variable, shared, 1e-6)
        np.testing.assert_allclose(Kuu, kernel(Z) + 1e-6 * np.eye(4), rtol=1e-12)
    assert covariances.prior_variance(shared, tf.constant(X)).shape == (7, 1)


def test_multi_output_kernels_have_a_covariance_each() -> None:
    kernels = [SquaredExponential(1.3, 0.7), gpflow.kernels.Matern32(0.5, 0.2)]
    separate = gpflow.kernels.SeparateIndependent(kernels)
    shared_inputs = SharedIndependentInducingVariables(InducingPoints(Z))
    for inducing_variable in (InducingPoints(Z), shared_inputs):
        Kuf = covariances.Kuf(inducing_variable, separate, tf.constant(X))
        Kuu = covariances.Kuu(inducing_variable, separate, 1e-6)
        for i, kernel in enumerate(kernels):
            np.testing.assert_allclose(Kuf[i], kernel(Z, X), rtol=1e-12)
            np.testing.assert_allclose(Kuu[i], kernel(Z) + 1e-6 * np.eye(4), rtol=1e-12)
        variance = covariances.prior_variance(separate, tf.constant(X))
        np.testing.assert_allclose(variance, np.tile([1.3, 0.5], [7, 1]))


class _OfNetwork(Kernel):
    """A network's outputs in a kernel, as in GPflow's notebook; Keras takes matrices alone for its inputs."""

    def __init__(self, input_dim: int) -> None:
        super().__init__()
        inputs = tf_keras.layers.InputLayer((input_dim,), dtype=tf.float64)
        self.network = tf_keras.Sequential([inputs, tf_keras.layers.Dense(2, dtype=tf.float64)])
        self.base = SquaredExponential()

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return self.base.K(self.network(X), None if X2 is None else self.network(X2))

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.base.K_diag(self.network(X))


@pytest.mark.parametrize("input_dim", [1, 2, 3, 4])
def test_networks_in_kernels_take_any_number_of_inputs(input_dim: int) -> None:
    kernel, inputs = _OfNetwork(input_dim), np.random.default_rng(0).normal(size=(3, 5, input_dim))
    actual = covariances.batch_covariance(kernel, tf.constant(inputs))
    np.testing.assert_allclose(actual[:, 0], [kernel(x) for x in inputs])
