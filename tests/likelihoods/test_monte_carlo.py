"""Likelihoods that GPflow integrates by draws: against many draws, closed forms, and the same call again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Gaussian, GaussianMC, MonteCarloLikelihood, Softmax

import gpflow_deep as gd
from gpflow_deep.likelihoods import (
    predict_log_density,
    predict_mean_and_var,
    variational_expectations,
)
from gpflow_deep.likelihoods.monte_carlo import new_nodes, nodes_of_seed

_RNG = np.random.default_rng(0)
N, CLASSES = 7, 4
X = tf.constant(_RNG.standard_normal([N, 2]))
MEAN = tf.constant(2.0 * _RNG.standard_normal([N, CLASSES]))
VARIANCE = tf.constant(_RNG.uniform(0.05, 2.0, [N, CLASSES]))
Y = tf.constant(_RNG.integers(0, CLASSES, [N, 1]))


def _draws(num: int) -> np.ndarray:
    """Log probabilities of the classes [num, N, C] by draws."""
    noise = np.random.default_rng(1).standard_normal([num, N, CLASSES])
    F = MEAN.numpy() + np.sqrt(VARIANCE.numpy()) * noise
    return F - np.logaddexp.reduce(F, axis=-1, keepdims=True)


def test_many_draws_agree() -> None:
    log_p = _draws(40_000)
    observed = np.take_along_axis(log_p, Y.numpy()[None], axis=-1)[..., 0]  # [num, N]
    expected = variational_expectations(Softmax(CLASSES), X, MEAN, VARIANCE, Y)
    np.testing.assert_allclose(expected, observed.mean(axis=0), atol=0.03)
    density = predict_log_density(Softmax(CLASSES), X, MEAN, VARIANCE, Y)
    np.testing.assert_allclose(np.exp(density), np.exp(observed).mean(axis=0), atol=0.01)
    mean, variance = predict_mean_and_var(Softmax(CLASSES), X, MEAN, VARIANCE)
    p = np.exp(log_p).mean(axis=0)
    np.testing.assert_allclose(mean, p, atol=0.01)
    np.testing.assert_allclose(variance, p * (1.0 - p), atol=0.01)
    np.testing.assert_allclose(np.sum(mean, axis=1), 1.0)


def test_new_nodes_are_unbiased_and_vary_less_than_draws() -> None:
    likelihood, seeds = Softmax(CLASSES), range(200)
    values = []
    for seed in seeds:
        with nodes_of_seed([seed, 0]):
            values.append(variational_expectations(likelihood, X, MEAN, VARIANCE, Y).numpy())
    log_p = _draws(40_000)
    observed = np.take_along_axis(log_p, Y.numpy()[None], axis=-1)[..., 0]
    error = np.sqrt(np.var(values, axis=0) / len(values) + observed.var(axis=0) / len(observed))
    assert (np.abs(np.mean(values, axis=0) - observed.mean(axis=0)) < 4.5 * error).all()
    theirs = [likelihood.variational_expectations(X, MEAN, VARIANCE, Y) for _ in range(50)]
    assert (np.std(values, axis=0) < 0.3 * np.std(theirs, axis=0)).all()


def test_closed_forms() -> None:
    mean, variance = MEAN[:, :1], VARIANCE[:, :1]
    for function in (variational_expectations, predict_log_density):
        exact = function(Gaussian(0.5), X, mean, variance, mean + 0.3)
        ours = function(GaussianMC(0.5), X, mean, variance, mean + 0.3)
        np.testing.assert_allclose(ours, exact, rtol=0.02)
    exact = predict_mean_and_var(Gaussian(0.5), X, mean, variance)
    ours = predict_mean_and_var(GaussianMC(0.5), X, mean, variance)
    for one, other in zip(ours, exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.02, atol=0.01)


class _Laplace(MonteCarloLikelihood):
    """As a user writes one."""

    def __init__(self) -> None:
        super().__init__(input_dim=None, latent_dim=1, observation_dim=1)

    def _log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(-tf.abs(Y - F) / 0.3 - np.log(0.6), axis=-1)

    def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.exp(F)

    def _conditional_variance(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return 0.18 * tf.exp(F)


@pytest.mark.parametrize("make", [_Laplace, lambda: GaussianMC(0.01)])
def test_one_function_needs_no_draws(make: Callable[[], MonteCarloLikelihood]) -> None:
    likelihood, mean, variance = make(), MEAN[:, :1], VARIANCE[:, :1]
    target = mean + 0.3
    z = np.linspace(-10.0, 10.0, 20_001)
    weights = np.exp(-0.5 * z**2) * (z[1] - z[0]) / np.sqrt(2.0 * np.pi)
    F = tf.reshape(mean + tf.sqrt(variance) * z, [-1, 1])  # [N Q, 1]

    def at_values(function: Callable[..., Any], *others: tf.Tensor) -> np.ndarray:
        rows = [tf.repeat(x, len(z), axis=0) for x in (X, *others)]
        return np.reshape(function(rows[0], F, *rows[1:]), [N, -1])

    log_p = at_values(likelihood.log_prob, target)
    expected = variational_expectations(likelihood, X, mean, variance, target)
    np.testing.assert_allclose(expected, log_p @ weights, rtol=1e-5)
    density = predict_log_density(likelihood, X, mean, variance, target)
    np.testing.assert_allclose(density, np.log(np.exp(log_p) @ weights), atol=1e-3)  # a kink
    moments = [
        at_values(moment)
        for moment in (likelihood.conditional_mean, likelihood.conditional_variance)
    ]
    m = moments[0] @ weights
    v = (moments[1] + (moments[0] - m[:, None]) ** 2) @ weights
    for own, exact in zip(predict_mean_and_var(likelihood, X, mean, variance), (m, v), strict=True):
        np.testing.assert_allclose(own[:, 0], exact, rtol=1e-6)


def test_a_method_of_ones_own_is_used() -> None:
    class Constant(Softmax):
        def _variational_expectations(self, X: Any, Fmu: Any, Fvar: Any, Y: Any) -> tf.Tensor:
            return tf.zeros([tf.shape(Fmu)[0]], Fmu.dtype)

    values = variational_expectations(Constant(CLASSES), X, MEAN, VARIANCE, Y)
    np.testing.assert_array_equal(values, 0.0)


def test_which_nodes() -> None:
    value = partial(variational_expectations, Softmax(CLASSES), X, MEAN, VARIANCE, Y)
    fixed = value()
    np.testing.assert_array_equal(value(), fixed)
    with nodes_of_seed([1, 2]):
        seeded = value().numpy()
        with new_nodes():  # a seed says which
            np.testing.assert_array_equal(value(), seeded)
    assert not np.any(seeded == fixed)
    with new_nodes():
        tf.random.set_seed(1)
        first, second = value().numpy(), value().numpy()
        tf.random.set_seed(1)
        np.testing.assert_array_equal(value(), first)
    assert not np.any(first == second)
    with new_nodes(False):
        np.testing.assert_array_equal(value(), fixed)


def test_components_of_a_mixture_have_nodes_of_their_own() -> None:
    """Of classes alike by symmetry none is favoured, as it was with the same nodes for all components."""
    likelihood, C, S = Softmax(10), 10, 100
    alike = tf.zeros([S, N, C], tf.float64)
    mean, _ = predict_mean_and_var(likelihood, X, alike, 9.0 + alike)
    classes = tf.range(C, dtype=tf.int64)[:N, None]
    density = predict_log_density(likelihood, X, alike, 9.0 + alike, classes)
    for p in (tf.reduce_mean(mean, axis=0), tf.reduce_mean(tf.exp(density), axis=0)):
        np.testing.assert_allclose(p, 0.1, atol=0.003)
    # The same call again, and compiled, and of some rows.
    compiled = tf.function(lambda X, F: predict_mean_and_var(likelihood, X, F, 9.0 + F)[0])
    np.testing.assert_allclose(compiled(X, alike), mean, rtol=1e-12)
    np.testing.assert_allclose(compiled(X[2:4], alike[:, 2:4]), mean[:, 2:4], rtol=1e-12)
    unknown = [
        tf.TensorSpec([None] * (x.shape.rank - 1) + [x.shape[-1]], x.dtype) for x in (X, alike)
    ]
    traced = compiled.get_concrete_function(*unknown)
    np.testing.assert_allclose(traced(X, alike), mean, rtol=1e-12)
    # Each is right by itself, too, and variances that all components share are theirs.
    one, _ = predict_mean_and_var(likelihood, X, alike[:1], 0.1 + alike[0])
    np.testing.assert_allclose(one, 0.1 * np.ones([1, N, C]), atol=0.002)


def test_few_points_and_single_precision() -> None:
    likelihood = Softmax(CLASSES)
    likelihood.num_monte_carlo_points = 1
    arguments = [tf.cast(x, tf.float32) for x in (X, MEAN, VARIANCE)]
    mean, variance = predict_mean_and_var(likelihood, *arguments)
    assert mean.dtype == variance.dtype == tf.float32
    assert np.isfinite(mean).all() and np.isfinite(variance).all()


def test_no_variance_has_a_gradient() -> None:
    variance = tf.zeros_like(VARIANCE)
    with tf.GradientTape() as tape:
        tape.watch(variance)
        value = variational_expectations(Softmax(CLASSES), X, MEAN, variance, Y)
    assert np.isfinite(tape.gradient(value, variance)).all()


# ---------------------------------------------------------------- models


def _fit(steps: int, checkpoint_dir: Path | None = None) -> Any:
    layers = gd.layers.build_layers(X, (2,), CLASSES, num_inducing=5)
    model = gd.models.DeepGP(layers, Softmax(CLASSES), num_samples=2)
    folder = None if checkpoint_dir is None else str(checkpoint_dir)
    data = (X.numpy(), Y.numpy())
    result = gd.training.fit(
        model, data, steps=steps, batch_size=5, progress=False, checkpoint_dir=folder
    )
    return model, result.history["loss"][-1]


def test_training_depends_on_its_seed_and_goes_on_to_the_bit(tmp_path: Path) -> None:
    model, loss = _fit(6)
    _fit(3, tmp_path)
    other, resumed = _fit(6, tmp_path)
    assert _fit(6)[1] == loss == resumed
    for one, two in zip(model.trainable_variables, other.trainable_variables, strict=True):
        np.testing.assert_array_equal(one, two)


def test_predictions_and_bounds_of_given_draws_are_functions() -> None:
    layers = gd.layers.build_layers(X, (2,), CLASSES, num_inducing=5)
    model = gd.models.DeepGP(layers, Softmax(CLASSES), num_samples=2)
    data = (X, Y)
    for call in (
        lambda: model.predict_y(X)[0],
        lambda: model.predict_log_density(data),
        lambda: model.posterior().predict_y(X)[0],
        lambda: model.elbo(data, model.draw_noise(N, seed=[1, 2])),
        model.training_loss_closure(data, seed=1),
    ):
        np.testing.assert_array_equal(call(), call())
    assert model.elbo(data) != model.elbo(data)


def test_one_layer_has_the_bound_of_gpflow() -> None:
    layers = gd.layers.build_layers(X, (), CLASSES, num_inducing=5)
    model = gd.models.DeepGP(layers, Softmax(CLASSES), gd.posteriors.MeanField)
    theirs = gpflow.models.SVGP(
        layers[0].kernel, Softmax(CLASSES), layers[0].inducing_variable, num_latent_gps=CLASSES
    )
    ours, others = (np.array([m.elbo((X, Y)) for _ in range(100)]) for m in (model, theirs))
    error = np.hypot(ours.std(), others.std()) / 10.0
    assert abs(ours.mean() - others.mean()) < 4.5 * error and ours.std() < others.std()
