"""Draws of whole functions: of every family's posterior, the same at every call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.layers.bayesian import Activation
from gpflow_deep.models import DeepGPModel
from tests.models.contract import FAMILIES, XNEW, X, Y, make_model, randomise

WITHOUT = {"sigma-points", "amortized-samples", "amortized-sites", "fitc-ep", "latent-variables"}
WITH = [family for family in FAMILIES if family not in WITHOUT]
SEED = [3, 4]


def _layers(**settings: Any) -> list[gd.layers.GPLayer]:
    return gd.layers.build_layers(X, (2,), num_inducing=5, **settings)


def _one_layer(whiten: bool) -> DeepGPModel:
    layer = gd.layers.GPLayer(
        gpflow.kernels.Matern52(),
        X[::4],
        2,
        gpflow.mean_functions.Linear(np.ones((2, 2))),
        whiten=whiten,
    )
    return gd.models.DeepGP(
        [layer], gpflow.likelihoods.Gaussian(0.1), posterior=gd.posteriors.MeanField
    )


def _unwhitened() -> DeepGPModel:
    layers = [
        gd.layers.GPLayer(layer.kernel, layer.inducing_variable, layer.num_latent_gps, whiten=False)
        for layer in _layers()
    ]
    return gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_data=len(X))


def _coregionalised() -> DeepGPModel:
    kernel = gpflow.kernels.LinearCoregionalization(
        [gpflow.kernels.Matern32(), gpflow.kernels.SquaredExponential(lengthscales=0.5)],
        W=np.random.default_rng(0).standard_normal((3, 2)),
    )
    layers = [
        _layers()[0],
        gd.layers.GPLayer(kernel, X[::4], 2, gpflow.mean_functions.Constant(np.ones(3))),
    ]
    return gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_data=len(X))


def _own_inducing_inputs() -> DeepGPModel:
    kernel = gpflow.kernels.SeparateIndependent(
        [gpflow.kernels.Matern32(), gpflow.kernels.SquaredExponential(lengthscales=0.5)]
    )
    Z = gpflow.inducing_variables.SeparateIndependentInducingVariables(
        [gpflow.inducing_variables.InducingPoints(X[i::4]) for i in range(2)]
    )
    layer = gd.layers.GPLayer(kernel, Z, 2)
    return gd.models.DeepGP([layer], gpflow.likelihoods.Gaussian(0.1), num_data=len(X))


def _orthogonal() -> DeepGPModel:
    return gd.models.OrthogonalSVGP(
        gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1), X[::4], X[2::4]
    )


def _independent(layers: Any) -> DeepGPModel:
    return gd.models.GlobalInducingDeepGP(
        layers, gpflow.likelihoods.Gaussian(0.1), posterior=gd.posteriors.IndependentGaussian
    )


def _separate_propagated() -> DeepGPModel:
    layers = _layers()
    kernel = gd.kernels.StackedStationary(2, lengthscales=[0.5, 2.0])
    top = gd.layers.GPLayer(kernel, None, 2)
    return gd.models.GlobalInducingDeepGP([layers[0], top], gpflow.likelihoods.Gaussian(0.1))


def _network_under_gps(posterior: Any = None) -> DeepGPModel:
    layers = [gd.layers.BayesianDense(2), Activation("tanh")]
    layers.append(gd.layers.GPLayer(gpflow.kernels.Matern52(), None, 1))
    return gd.models.GlobalInducingBNN(layers, gpflow.likelihoods.Gaussian(0.1), X[::4])


def _stacked() -> DeepGPModel:
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    first, second = _layers()
    below = gd.models.GlobalInducingDeepGP([first], likelihood)
    return gd.models.StackedDeepGP([below, gd.models.DeepGP([second], likelihood)])


MODELS: dict[str, Callable[[], DeepGPModel]] = {
    **{family: partial(make_model, family, output_dim=2, random=False) for family in WITH},
    "unwhitened": _unwhitened,
    "coregionalised": _coregionalised,
    "inducing inputs of each GP's own": _own_inducing_inputs,
    "orthogonal": _orthogonal,
    "independent Gaussians": lambda: _independent(_layers()),
    "kernels of each GP's own, propagated": _separate_propagated,
    "network under GPs": _network_under_gps,
    "stacked": _stacked,
}


def _make(name: str) -> DeepGPModel:
    model = MODELS[name]()
    randomise(model)
    return model


def _moments(draws: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means and products of all values, and their standard errors."""
    flat = np.reshape(draws, [len(draws), -1])
    values = np.concatenate(
        [flat, (flat[:, :, None] * flat[:, None, :]).reshape(len(flat), -1)], axis=1
    )
    return values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))


@pytest.mark.parametrize("name", MODELS)
def test_they_have_the_law_of_joint_draws(name: str) -> None:
    model = _make(name)
    mean, error = _moments(model.sample_functions(3_000, SEED, num_features=30)(XNEW[:4]))
    expected, own_error = _moments(model.predict_f_samples(XNEW[:4], 3_000))
    assert (np.abs(mean - expected) < 5 * np.hypot(error, own_error) + 1e-9).all()
    assert np.median(error) < 0.1 * np.abs(expected).max()  # so that the line above can fail


@pytest.mark.parametrize("jitter", [1e-6, 0.3])
@pytest.mark.parametrize("whiten", [True, False])
def test_one_layer_has_the_moments_of_its_prediction(whiten: bool, jitter: float) -> None:
    gpflow.config.set_default_jitter(jitter)
    model = _one_layer(whiten)
    randomise(model)
    draws = model.sample_functions(10_000, SEED, num_features=20)(XNEW).numpy()
    mean, covariance = model.predict_f(XNEW, full_cov=True)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.06)
    for p in range(2):
        np.testing.assert_allclose(np.cov(draws[:, :, p].T), covariance[p], atol=0.06)


def test_functions_of_all_layers_are_drawn_together() -> None:
    """With the covariance of their inducing outputs, within and between layers."""
    # Points far from each other, whose covariance is far above the jitter.
    layers = [
        gd.layers.GPLayer(gpflow.kernels.Matern32(lengthscales=0.7), Z, 1)
        for Z in (
            np.tile(np.linspace(-2.0, 2.0, 4)[:, None], 2),
            np.linspace(-2.0, 2.0, 4)[:, None],
        )
    ]
    model = gd.models.DeepGP(
        layers, gpflow.likelihoods.Gaussian(0.1), posterior=gd.posteriors.FullyCoupled
    )
    factor = np.tril(np.random.default_rng(0).standard_normal((8, 8)))
    np.fill_diagonal(factor, 0.5)
    model.inducing_posterior.assign_dense(np.arange(8.0), factor)
    drawn = model._draw_layer_functions(5_000, tf.constant(SEED), 10)
    passage, points = drawn.make_passage(), [layer.inducing_variable.Z for layer in layers]
    below = None
    values = []
    for layer, Z in zip(layers, points, strict=True):
        below = passage.condition(layer, tf.convert_to_tensor(Z)[None], below)
        values.append((below.mean - layer.latent_mean(tf.convert_to_tensor(Z)))[..., 0])
    whitened = [
        np.linalg.solve(layer.factorise(), np.transpose(u)).T for layer, u in zip(layers, values)
    ]
    mean, error = _moments(np.concatenate(whitened, axis=1))
    second = factor @ factor.T + np.outer(np.arange(8.0), np.arange(8.0))
    expected = np.concatenate([np.arange(8.0), second.ravel()])
    assert (np.abs(mean - expected) < 5 * error + 0.01).all()
    # Without the coupling of the layers it would not be so.
    coupling = np.abs((factor @ factor.T)[4:, :4])
    assert (coupling > 7 * error[8:].reshape(8, 8)[4:, :4]).sum() > 6


def test_they_pass_through_the_inducing_outputs() -> None:
    model = _one_layer(whiten=False)
    layer, M = model.layers[0], len(X[::4])
    u = np.random.default_rng(0).standard_normal((M, 2))
    model.inducing_posterior.q_mu[0].assign(u)
    model.inducing_posterior.q_sqrt[0].assign(np.tile(1e-8 * np.eye(M), (2, 1, 1)))
    values = model.sample_functions(3, SEED)(layer.inducing_variable.Z)
    # Up to the jitter.
    np.testing.assert_allclose(values, np.tile(u + layer.prior_mean(X[::4]), (3, 1, 1)), atol=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_they_are_the_same_functions_at_every_call(name: str) -> None:
    model = _make(name)
    f = model.sample_functions(3, SEED, num_features=10)
    values = f(XNEW)
    assert values.shape[:2] == (3, 6)
    np.testing.assert_allclose(f(XNEW[::-1])[:, ::-1], values, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(f(XNEW[2:3]), values[:, 2:3], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        model.sample_functions(3, SEED, num_features=10)(XNEW), values, rtol=1e-12
    )
    assert not np.allclose(model.sample_functions(3, [3, 5], num_features=10)(XNEW), values)
    own = np.random.default_rng(0).standard_normal((3, 5, 2))
    for s, each in enumerate(f(own)):
        np.testing.assert_allclose(each, f(own[s])[s], rtol=1e-8, atol=1e-10)
    # What becomes of the model is nothing to them.
    randomise(model, seed=2)
    np.testing.assert_allclose(f(XNEW), values, rtol=1e-12)


@pytest.mark.parametrize("name", ["stripes-and-arrow", "global-inducing", "network under GPs"])
def test_compiled_with_gradients(name: str) -> None:
    f = _make(name).sample_functions(3, SEED, num_features=10)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float64)])
    def slopes(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            values = f(x)
            total = tf.reduce_sum(values)
        return values, tape.gradient(total, x)

    values, gradient = slopes(XNEW)
    np.testing.assert_allclose(values, f(XNEW), rtol=1e-8, atol=1e-10)
    step = 1e-5 * np.eye(2)
    for d in range(2):
        difference = tf.reduce_sum(f(XNEW + step[d]) - f(XNEW - step[d]), axis=[0, 2]) / 2e-5
        np.testing.assert_allclose(gradient[:, d], difference, rtol=1e-5, atol=1e-7)


def test_many_points_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    f = _make("mean-field").sample_functions(3, SEED, num_features=10)
    own = np.random.default_rng(0).standard_normal((3, 7, 2))
    values = f(XNEW), f(own)
    monkeypatch.setattr(gd.models.functions, "part_size", lambda *sizes: 2)
    for part, whole in zip((f(XNEW), f(own)), values):
        np.testing.assert_allclose(part, whole, rtol=1e-12)
    compiled = tf.function(f, input_signature=[tf.TensorSpec([3, None, 2], tf.float64)])
    np.testing.assert_allclose(compiled(own), values[1], rtol=1e-10)


@pytest.mark.parametrize(
    "name", ["mean-field", "kernels of each GP's own, propagated", "bayesian-network"]
)
def test_no_points(name: str) -> None:
    f = _make(name).sample_functions(3, SEED, num_features=10)
    assert f(XNEW[:0]).shape == f(np.zeros((3, 0, 2))).shape == (3, 0, f(XNEW).shape[-1])


def test_what_they_make_of_a_point_on_the_way_is_counted() -> None:
    """By which memory is bounded."""
    one, each = _make("mean-field"), _make("kernels of each GP's own, propagated")
    assert one.sample_functions(3, SEED, num_features=10)._drawn.width == 20
    assert each.sample_functions(3, SEED, num_features=10)._drawn.width == 40


def test_new_ones_without_a_seed() -> None:
    model = _make("mean-field")
    tf.random.set_seed(1)
    one, other = model.sample_functions(2)(XNEW), model.sample_functions(2)(XNEW)
    assert not np.allclose(one, other)
    tf.random.set_seed(1)
    np.testing.assert_array_equal(model.sample_functions(2)(XNEW), one)


def test_float32() -> None:
    with gpflow.config.as_context():
        gpflow.config.set_default_float(np.float32)
        layers = gd.layers.build_layers(X.astype(np.float32), (2,), num_inducing=5)
        model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.1))
        draws = model.sample_functions(3_000, SEED, num_features=30)(XNEW[:4])
        assert draws.dtype == tf.float32
        mean, error = _moments(draws)
        expected, own_error = _moments(model.predict_f_samples(XNEW[:4], 3_000))
    assert (np.abs(mean - expected) < 5 * np.hypot(error, own_error) + 1e-3).all()


def test_thompson_sampling_finds_the_least_value() -> None:
    """The use that they are for: trained on data, descended by gradients."""
    layers = gd.layers.build_layers(X, (1,), num_inducing=10)
    model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.01), num_data=len(X))
    gd.training.fit(model, (X, Y), steps=300, learning_rate=0.05, progress=False)
    f = model.sample_functions(4, SEED)
    x = tf.Variable(np.tile(X[np.argmin(Y)], (4, 1, 1)))
    start = f(x)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(f(x))
        x.assign_sub(0.02 * tape.gradient(total, x))

    for _ in range(30):
        step()
    assert (f(x) < start).numpy().all()
    # No function knows less of the data than the model does.
    np.testing.assert_allclose(tf.reduce_mean(f(X), axis=0), model.predict_f(X)[0], atol=0.5)


def test_what_users_compiled_and_keep_with_the_model() -> None:
    """As GPflow's guide to saving does. Once traced it cannot be copied, and is not."""
    model = make_model("stripes-and-arrow")
    expected = model.sample_functions(2, seed=SEED)(XNEW)
    model.compiled_predict_y = tf.function(model.predict_y)
    model.layers[0].compiled = tf.function(model.layers[0].kernel)
    model.compiled_predict_y(XNEW), model.layers[0].compiled(X)
    np.testing.assert_array_equal(model.sample_functions(2, seed=SEED)(XNEW), expected)


# What is refused.


@pytest.mark.parametrize("family", sorted(WITHOUT))
def test_families_without_functions(family: str) -> None:
    with pytest.raises(NotImplementedError, match="posterior over whole functions, got"):
        make_model(family).sample_functions(3)


def test_kernels_and_inducing_variables_that_it_cannot_take() -> None:
    layers = _layers(white_noise=1e-3)
    model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.1))
    with pytest.raises(NotImplementedError, match="spectral density is known.*got White"):
        model.sample_functions(3)
    Z = gpflow.inducing_variables.Multiscale(X[::4], np.ones((5, 2)))
    layer = gd.layers.GPLayer(gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0]), Z, 1)
    model = gd.models.DeepGP([layer], gpflow.likelihoods.Gaussian(0.1))
    with pytest.raises(NotImplementedError, match="expected InducingPoints.*got Multiscale"):
        model.sample_functions(3)


@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"num_samples": 0}, "num_samples: expected"),
        ({"num_samples": 3, "num_features": 0}, "num_features: expected"),
        (
            {"num_samples": 3, "seed": 1.0},
            "seed: expected None, an integer from 0 on, or two integers",
        ),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make_model("mean-field").sample_functions(**arguments)


@pytest.mark.parametrize(
    "inputs, match",
    [
        (np.zeros(2), r"X: expected inputs \[N, D\] or \[S, N, D\], got shape \(2,\)"),
        (np.zeros((4, 6, 2)), "X: expected 3 sets of inputs, one for each function, got 4"),
        (np.zeros((6, 3)), "X: expected"),
    ],
)
def test_bad_inputs(inputs: np.ndarray, match: str) -> None:
    f = make_model("mean-field").sample_functions(3)
    with pytest.raises(ValueError, match=match):
        f(inputs)


def test_not_drawn_in_compiled_functions() -> None:
    model = make_model("mean-field")
    with pytest.raises(RuntimeError, match="outside of compiled functions"):
        tf.function(lambda: model.sample_functions(3)(XNEW))()
