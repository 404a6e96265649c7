"""Products over points in float32 under float64 parameters: the same model but for rounding."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.models import DeepGP
from tests.models.contract import XNEW, YNEW, X, Y, gradients, make_model

SINGLE = ("mean-field", "stripes-and-arrow", "fully-coupled", "block-structured", "sigma-points")


def pair(family: str, **settings: Any) -> list[DeepGP]:
    """Two models with the same parameters and draws, the second computing in float32."""
    return [make_model(family, compute_dtype=dtype, **settings) for dtype in (None, "float32")]


@pytest.mark.parametrize("family", SINGLE)
def test_objective_and_gradients(family: str) -> None:
    double, single = pair(family, hidden_dims=(2, 2))
    noise = double.draw_noise(len(X), seed=[1, 2])
    (value, slopes), (rounded, rounded_slopes) = (
        gradients(lambda m=model: m.elbo((X, Y), noise), model.trainable_variables)
        for model in (double, single)
    )
    assert rounded.dtype == tf.float64
    assert rounded != value  # or nothing was computed in float32
    np.testing.assert_allclose(rounded, value, rtol=1e-5)
    for slope, rounded_slope in zip(slopes, rounded_slopes, strict=True):
        assert rounded_slope.dtype == tf.float64
        scale = np.abs(slope).max()
        np.testing.assert_allclose(rounded_slope, slope, rtol=0, atol=2e-4 * scale + 1e-8)


@pytest.mark.parametrize("family", SINGLE)
def test_predictions(family: str) -> None:
    """They do not take training's short cut."""
    double, single = pair(family)
    for part, rounded in zip(double.predict_y(XNEW), single.predict_y(XNEW), strict=True):
        assert rounded.dtype == tf.float64
        np.testing.assert_array_equal(rounded, part)
    density = single.posterior().predict_log_density((XNEW, YNEW))
    np.testing.assert_allclose(
        density, double.predict_log_density((XNEW, YNEW)), rtol=1e-12, atol=1e-12
    )
    for layer in single.propagate(XNEW):
        assert {part.dtype for part in layer} == {tf.float64}


def test_little_variance_is_left_as_it_is() -> None:
    """Many inducing points and little noise: in float32 a sixth of the variances came to nothing."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-2.0, 2.0, (500, 1)), axis=0)
    Y = np.sin(20.0 * X) + 0.01 * rng.standard_normal(X.shape)
    kernel, Z = gpflow.kernels.SquaredExponential(lengthscales=0.05), np.linspace(-2.0, 2.0, 200)
    exact = gpflow.models.SGPR((X, Y), kernel, Z[:, None], noise_variance=1e-4)
    mean, covariance = exact.compute_qu()
    layer = gd.layers.GPLayer(kernel, Z[:, None], 1)
    model = DeepGP(
        [layer],
        gpflow.likelihoods.Gaussian(1e-4),
        gd.posteriors.MeanField,
        compute_dtype="float32",
    )
    factor = layer.factorise().numpy()
    whitened = np.linalg.solve(factor, np.linalg.solve(factor, covariance).T)
    model.q_mu.assign(np.linalg.solve(factor, mean))
    model.q_sqrt.assign(
        np.linalg.cholesky(0.5 * (whitened + whitened.T) + 1e-12 * np.eye(200))[None]
    )
    _, expected = exact.predict_f(X)
    _, variance = model.predict_f(X)
    np.testing.assert_allclose(variance, expected, rtol=1e-3, atol=1e-8)


def test_float64_under_parameters_in_float32() -> None:
    """It counts for predictions too."""
    gpflow.config.set_default_float(np.float32)
    single, double = (
        make_model("mean-field", compute_dtype=dtype) for dtype in ("float32", "float64")
    )
    inputs = XNEW.astype(np.float32)
    (mean, variance), (own_mean, own_variance) = (m.predict_f(inputs) for m in (double, single))
    assert mean.dtype == variance.dtype == tf.float32
    assert np.abs(mean - own_mean).max() > 0.0
    np.testing.assert_allclose(mean, own_mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(variance, own_variance, rtol=1e-2, atol=1e-4)


def test_parts_of_a_whole_train_in_their_own_dtype() -> None:
    bounds, means = [], []
    for dtype in ("float64", "float32"):
        likelihood = gpflow.likelihoods.Gaussian(0.1)
        layers = gd.layers.build_layers(X, (2,), num_inducing=5)
        parts = [
            DeepGP([layer], likelihood, gd.posteriors.MeanField, compute_dtype=dtype)
            for layer in layers
        ]
        for part in parts:
            part.q_mu.assign(np.random.default_rng(0).standard_normal(part.q_mu.shape))
        whole = gd.models.StackedDeepGP(parts, num_data=len(X))
        bounds.append(whole.elbo((X, Y), whole.draw_noise(len(X), seed=[1, 2])).numpy())
        means.append(whole.predict_f(XNEW)[0])
    np.testing.assert_array_equal(*means)
    assert bounds[0] != bounds[1]
    np.testing.assert_allclose(bounds[1], bounds[0], rtol=1e-5)


@pytest.mark.parametrize(
    "kernel",
    [
        gpflow.kernels.Matern52(lengthscales=[1.0, 2.0]),
        gpflow.kernels.SquaredExponential() + gpflow.kernels.White(0.01),
        gpflow.kernels.SeparateIndependent(
            [gpflow.kernels.Matern32(), gpflow.kernels.SquaredExponential()]
        ),
    ],
)
def test_kernels_and_mean_functions(kernel: gpflow.kernels.Kernel) -> None:
    """Kernels whose parameters do not follow their inputs are evaluated in float64."""
    mean = gpflow.mean_functions.Linear(np.ones((2, 2)), np.ones(2))
    layer = gd.layers.GPLayer(kernel, X[:5].copy(), 2, mean)
    double = layer.project(tf.constant(X)[None], layer.factorise())
    factor = tf.cast(layer.factorise(), tf.float32)
    single = layer.project(tf.constant(X, tf.float32)[None], factor)
    for part, rounded in zip(double, single, strict=True):
        assert rounded.dtype == tf.float32
        np.testing.assert_allclose(rounded, part, rtol=1e-4, atol=1e-4)


def test_inducing_outputs_that_are_drawn() -> None:
    double, single = pair("stripes-and-arrow", marginalisation="monte_carlo")
    noise = double.draw_noise(len(X), seed=[1, 2])
    np.testing.assert_allclose(single.elbo((X, Y), noise), double.elbo((X, Y), noise), rtol=1e-4)


def test_training_comes_to_the_same_bound() -> None:
    ends = []
    for model in pair("stripes-and-arrow", random=False):
        gd.training.fit(model, (X, Y), steps=20, learning_rate=0.05, seed=0, progress=False)
        ends.append(float(model.elbo((X, Y), model.draw_noise(len(X), seed=[3, 4]))))
    np.testing.assert_allclose(ends[1], ends[0], atol=0.05)


@pytest.mark.parametrize("family", ["mean-field", "stripes-and-arrow", "fully-coupled"])
@pytest.mark.parametrize("whiten", [True, False])
def test_covariances_of_the_inducing_outputs(family: str, whiten: bool) -> None:
    """In float32 where the prior's is the identity; else the divergence would lose its digits."""
    double, single = (
        make_model(
            family,
            layers=gd.layers.build_layers(X, (2, 2), num_inducing=5, whiten=whiten),
            compute_dtype=dtype,
        )
        for dtype in (None, "float32")
    )
    (exact, rounded) = (model._prepare_training(()).moments for model in (double, single))
    for layer, rounded_layer in zip(exact.layers, rounded.layers, strict=True):
        assert rounded_layer.own.dtype == (tf.float32 if whiten else tf.float64)
        assert rounded_layer.mean.dtype == tf.float64
        np.testing.assert_allclose(rounded_layer.own, layer.own, atol=1e-6 if whiten else 0.0)
    np.testing.assert_allclose(single.prior_kl(), double.prior_kl(), rtol=1e-6)


def test_bad_input() -> None:
    with pytest.raises(
        ValueError, match=r"compute_dtype: expected 'float32' or 'float64', got 'half'"
    ):
        make_model("mean-field", compute_dtype="half")
