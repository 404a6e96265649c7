"""Moments of a layer under a Gaussian input: closed forms, quadrature and sampling agree."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import Linear, Matern52, SeparateIndependent, SquaredExponential, White

import gpflow_deep as gd
from gpflow_deep.layers import moment_matching
from gpflow_deep.layers.moment_matching import at_points, under_gaussian
from gpflow_deep.psi_statistics import Gaussian

M, D, T = 5, 2, 3
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(T, M, D))
MEANS = {
    "zero": None,
    "identity-like": gpflow.functions.Linear(np.eye(D, T), np.arange(float(T))),
    "constant": gpflow.functions.Constant([0.5]),
}


def shared(kernel: gpflow.kernels.Kernel, mean: str) -> gd.layers.GPLayer:
    return gd.layers.GPLayer(kernel, Z[0], T, MEANS[mean])


def separate(kernels: list[gpflow.kernels.Kernel], mean: str) -> gd.layers.GPLayer:
    points = SeparateIndependentInducingVariables([InducingPoints(z) for z in Z])
    return gd.layers.GPLayer(SeparateIndependent(kernels), points, T, MEANS[mean])


LAYERS = {
    "shared": lambda: shared(SquaredExponential(1.2, [0.9, 1.4]) + White(0.1), "identity-like"),
    "separate": lambda: separate(
        [SquaredExponential(1.0 + t, [0.9 + 0.2 * t, 1.4]) for t in range(T)], "identity-like"
    ),
    "no mean": lambda: separate([SquaredExponential(1.0 + t, 0.9) for t in range(T)], "zero"),
    "sum": lambda: shared(SquaredExponential(0.5, 1.2) + Linear(0.4), "constant"),
    "different kinds": lambda: separate(
        [SquaredExponential(0.5, 1.2), Linear(0.4), SquaredExponential(1.0, 0.9) + Linear(0.1)],
        "identity-like",
    ),
    "spectral mixture": lambda: shared(
        gd.kernels.SpectralMixture([0.8], [[0.2, 0.1]], [[0.1, 0.2]]), "zero"
    ),
}


class _Halved(SquaredExponential):
    """A kernel with the methods of GPflow's and a covariance that a user registered."""


@gpflow.covariances.Kuf.register(InducingPoints, _Halved, object)
def _(iv: InducingPoints, kernel: _Halved, X: tf.Tensor) -> tf.Tensor:
    return 0.5 * kernel(iv.Z, X)


def weights(layer: gd.layers.GPLayer) -> tuple[tf.Tensor, tf.Tensor]:
    """Of some posterior."""
    factor = gd.posteriors.TiedFactor([layer])
    root = np.tril(RNG.normal(size=(T, M, M)), -1) + 2.0 * np.eye(M)
    factor.precision_sqrt[0].assign(root)
    factor.targets[0].assign(RNG.normal(size=(T, M)))
    covariance = gd.layers.covariances.Kuu(layer.inducing_variable, layer.kernel, 1e-6)
    return factor.weights(0, covariance, 1.0)


def inputs(full: bool) -> Gaussian:
    mean = tf.constant(RNG.normal(size=(4, D)))
    root = 0.2 * RNG.normal(size=(4, D, D))
    covariance = root @ np.swapaxes(root, 1, 2) + 0.01 * np.eye(D)
    return Gaussian(mean, tf.constant(covariance if full else np.einsum("ndd->nd", covariance)))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_closed_form_is_the_quadrature(name: str, full: bool) -> None:
    layer = LAYERS[name]()
    A, W = weights(layer)
    for input_full in (False, True):
        h = inputs(input_full)
        closed = under_gaussian(layer, h, A, W, full)
        quadrature = moment_matching._by_quadrature(layer, h, A, W, full)
        for one, other in zip(closed, quadrature, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_diagonal_is_that_of_the_full_covariance() -> None:
    for name, make in LAYERS.items():
        layer = make()
        A, W = weights(layer)
        h = inputs(full=True)
        mean, covariance = under_gaussian(layer, h, A, W, True)
        np.testing.assert_allclose(
            tf.linalg.diag_part(covariance), under_gaussian(layer, h, A, W)[1]
        )
        np.testing.assert_allclose(covariance, tf.linalg.matrix_transpose(covariance), err_msg=name)
        assert np.linalg.eigvalsh(covariance).min() > 0


def test_small_input_variance_is_a_point() -> None:
    layer = LAYERS["separate"]()
    A, W = weights(layer)
    h = inputs(full=False)
    tiny = Gaussian(h.mean, 1e-9 * tf.ones_like(h.covariance))
    for one, other in zip(under_gaussian(layer, tiny, A, W), at_points(layer, h.mean, A, W)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_any_kernel_and_mean_function_by_quadrature() -> None:
    """Matern kernels and a mean function that is not affine, against sampling."""

    class Squares(gpflow.functions.MeanFunction):
        def __call__(self, X: tf.Tensor) -> tf.Tensor:
            return tf.square(X[..., :1]) * tf.ones([T], X.dtype)

    layer = gd.layers.GPLayer(Matern52(1.0, 1.3), Z[0], T, Squares())
    A, W = weights(layer)
    h = inputs(full=True)
    mean, covariance = under_gaussian(layer, h, A, W, full=True)
    S = 200_000
    roots = np.linalg.cholesky(h.covariance)
    x = h.mean.numpy() + np.einsum("nde,sne->snd", roots, RNG.normal(size=(S, 4, D)))
    for n in range(4):
        means, variances = at_points(layer, tf.constant(x[:, n]), A, W)
        expected = np.cov(means.numpy().T) + np.diag(np.mean(variances, axis=0))
        error = 6 * means.numpy().std(0) / S**0.5
        np.testing.assert_allclose(mean[n], np.mean(means, axis=0), atol=error.max() + 1e-4)
        np.testing.assert_allclose(covariance[n], expected, rtol=0.03, atol=0.01)


@pytest.mark.parametrize(
    "kernel",
    [
        Matern52(1.0, 0.2),
        gpflow.kernels.Matern12(1.0, 0.5),
        gpflow.kernels.Periodic(SquaredExponential(), period=0.5),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_narrow_kernels_of_one_input(kernel: gpflow.kernels.Kernel) -> None:
    """Against a dense grid: functions that change within a fraction of the input's standard deviation."""
    layer = gd.layers.GPLayer(kernel, np.linspace(-2.0, 2.0, 15)[:, None], 1)
    K = kernel(layer.inducing_variable.Z).numpy() + 1e-6 * np.eye(15)
    values = np.random.default_rng(1).normal(size=15)
    A = tf.constant(np.linalg.solve(np.linalg.cholesky(K).T, values)[None])
    W = tf.constant(0.9 * np.linalg.inv(K)[None])
    centres = np.array([[0.0], [0.3], [1.0]])
    mean, variance = under_gaussian(
        layer, Gaussian(tf.constant(centres), tf.ones([3, 1], tf.float64)), A, W
    )[:2]
    z = np.linspace(-8.0, 8.0, 4001)
    share = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    for n, centre in enumerate(centres):
        means, variances = (
            x.numpy()[:, 0] for x in at_points(layer, tf.constant((centre + z)[:, None]), A, W)
        )
        expected = share @ means
        np.testing.assert_allclose(mean[n, 0], expected, atol=0.003)
        expected = share @ (variances + (means - expected) ** 2)
        np.testing.assert_allclose(variance[n, 0], expected, atol=0.006)


@pytest.mark.parametrize("full", [False, True])
def test_quadrature_of_an_unknown_number_of_points(full: bool) -> None:
    layer = shared(Matern52(1.0, 1.3), "constant")
    A, W = weights(layer)
    h = inputs(full)
    specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in h]

    @tf.function(input_signature=specs, autograph=False)
    def compiled(mean: tf.Tensor, covariance: tf.Tensor) -> Gaussian:
        return under_gaussian(layer, Gaussian(mean, covariance), A, W, full)

    for one, other in zip(compiled(*h), under_gaussian(layer, h, A, W, full), strict=True):
        np.testing.assert_allclose(one, other)


@pytest.mark.parametrize("kind", ["Zero", "Constant", "Identity", "Linear"])
def test_a_mean_function_is_affine_only_by_its_own_formula(kind: str) -> None:
    parent = getattr(gpflow.functions, kind)

    class Bent(parent):  # type: ignore[misc,valid-type]
        def __call__(self, X: tf.Tensor) -> tf.Tensor:
            return tf.sin(3.0 * X[:, :1])

    class Renamed(parent):  # type: ignore[misc,valid-type]
        pass

    layer = gd.layers.GPLayer(SquaredExponential(1.2, [0.9, 1.4]), Z[0], D, Bent())
    A, W = (x[:D] for x in weights(shared(SquaredExponential(), "zero")))
    h = inputs(full=False)
    expected = moment_matching._by_quadrature(layer, h, A, W, False)
    for one, other in zip(under_gaussian(layer, h, A, W), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    closed = moment_matching._affine(Renamed(), D, D)
    assert (closed is None) == (kind == "Zero")


def test_small_variances_in_single_precision() -> None:
    """Weights as large as the inverse of K_MM leave variances of 1e-3: their digits are not lost."""
    X = np.linspace(-2.0, 2.0, 9)[:, None]
    found = {}
    for float_type in (np.float64, np.float32):
        gpflow.config.set_default_float(float_type)
        layer = gd.layers.GPLayer(
            gpflow.kernels.SquaredExponential(lengthscales=1.0), X[::-1] * 1.05, 1
        )
        K = gpflow.covariances.Kuu(layer.inducing_variable, layer.kernel, jitter=0.0).numpy()
        K = K.astype(np.float64) + 1e-5 * np.eye(9)
        W = tf.constant(np.linalg.inv(K + 1e-3 * np.eye(9))[None])
        A = tf.constant(np.linalg.solve(K + 1e-3 * np.eye(9), np.sin(3.0 * X))[None, :, 0])
        mean = tf.constant(X, float_type)
        inputs = Gaussian(mean, tf.fill(mean.shape, tf.constant(1e-3, float_type)))
        found[float_type] = [*at_points(layer, mean, A, W), *under_gaussian(layer, inputs, A, W)]
    for single, double in zip(found[np.float32], found[np.float64]):
        assert single.dtype == tf.float32
        np.testing.assert_allclose(single, double, rtol=1e-3, atol=1e-6)
    assert float(tf.reduce_max(found[np.float64][1])) < 2e-3


def test_registered_covariances_have_no_closed_form() -> None:
    """Of inputs that are nearly points: what they are at points."""
    layer = shared(_Halved(1.2, [0.9, 1.4]), "zero")
    X = tf.constant(RNG.normal(size=(4, D)))
    A, W = weights(layer)
    inputs = Gaussian(X, tf.fill([4, D], tf.constant(1e-10, tf.float64)))
    moments = under_gaussian(layer, inputs, A, W), at_points(layer, X, A, W)
    for actual, expected in zip(*moments, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
