"""Layers of networks between the random ones, and priors over weights."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_deep.layers import BayesianConv2D, BayesianDense
from gpflow_deep.layers.bayesian import (
    Activation,
    AveragePool2D,
    Flatten,
    GlobalAveragePool2D,
    GroupNormalization,
    MaxPool2D,
    NetworkLayer,
    Residual,
    ScalePrior,
    SpatialInverseWishartPrior,
    connect,
    random_layers,
    walk,
)
from gpflow_deep.layers.bayesian.precisions import Isotropic, Spatial

IMAGES = np.random.default_rng(0).standard_normal([2, 3, 4, 6, 2])


def _walk(layers: Any, X: np.ndarray, *of_random: float) -> tuple[np.ndarray, list[np.ndarray]]:
    """What comes out where random layers give constants, and what goes into these."""
    path, seen, outputs = walk(layers, tf.constant(X)), [], None
    constants = iter(of_random)
    while True:
        try:
            seen.append(path.send(outputs).numpy())
        except StopIteration as end:
            return end.value.numpy(), seen
        outputs = tf.fill([2, 3, 2, 3, 4], tf.constant(next(constants), tf.float64))


def _apply(layer: NetworkLayer, X: np.ndarray = IMAGES) -> np.ndarray:
    layer.connect(X.shape[2:])
    outputs, seen = _walk([layer], X)
    assert not seen
    assert outputs.shape == (*X.shape[:2], *layer.output_shape)
    return outputs


# ---------------------------------------------------------------- deterministic layers


def test_pooling() -> None:
    windows = IMAGES.reshape([2, 3, 2, 2, 3, 2, 2])
    np.testing.assert_allclose(_apply(MaxPool2D()), windows.max(axis=(3, 5)))
    np.testing.assert_allclose(_apply(AveragePool2D(2)), windows.mean(axis=(3, 5)))
    np.testing.assert_allclose(_apply(GlobalAveragePool2D()), IMAGES.mean(axis=(2, 3)))
    np.testing.assert_allclose(_apply(MaxPool2D(3))[:, :, 0, 0], IMAGES[:, :, :3, :3].max((2, 3)))
    np.testing.assert_allclose(_apply(Flatten()), IMAGES.reshape([2, 3, -1]))
    # What is missing is not passed over.
    holes = IMAGES.copy()
    holes[0, 0, 0, 0, 0] = np.nan
    holes[1, 2, 2:, 4:, 1] = np.nan
    windows = holes.reshape([2, 3, 2, 2, 3, 2, 2]).max(axis=(3, 5))
    np.testing.assert_array_equal(_apply(MaxPool2D(), holes), windows)
    assert np.isnan(windows).sum() == 2


@pytest.mark.parametrize(
    "function", ["tanh", tf.tanh, tf_keras.layers.Activation("tanh", dtype="float64")]
)
def test_activations(function: Any) -> None:
    np.testing.assert_allclose(_apply(Activation(function)), np.tanh(IMAGES))


@pytest.mark.parametrize("groups", [1, 2])
def test_normalisation_is_each_points_own(groups: int) -> None:
    layer = GroupNormalization(groups, epsilon=0.0)
    outputs = _apply(layer)
    by_group = outputs.reshape([2, 3, 24, groups, -1])
    np.testing.assert_allclose(by_group.mean(axis=(2, 4)), 0.0, atol=1e-12)
    np.testing.assert_allclose(by_group.std(axis=(2, 4)), 1.0)
    np.testing.assert_allclose(_apply(layer, IMAGES[:, :1]), outputs[:, :1])
    layer.scale.assign([2.0, 3.0])
    np.testing.assert_allclose(_apply(layer), outputs * [2.0, 3.0])


def test_residual_blocks() -> None:
    first, second = BayesianConv2D(4, stride=2), BayesianConv2D(4, 1, stride=2)
    block = Residual([first, Activation("relu")], [second])
    assert connect([block], (4, 6, 2)) == (2, 3, 4)
    assert random_layers([block]) == [first, second]
    outputs, seen = _walk([block], IMAGES, -1.0, 2.0)
    np.testing.assert_allclose(outputs, 2.0)
    np.testing.assert_array_equal(seen, [IMAGES, IMAGES])
    np.testing.assert_allclose(
        _apply(Residual([Activation("relu")])), IMAGES + np.maximum(IMAGES, 0)
    )


def test_layers_survive_pickling() -> None:
    block = Residual([BayesianConv2D(2, prior="spatial"), Activation(), GroupNormalization(2)])
    block.connect((4, 6, 2))
    other = pickle.loads(pickle.dumps(block))
    assert other.output_shape == (4, 6, 2) and len(other.trainable_variables) == 4


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: _apply(Residual([MaxPool2D()])), "shortcut: expected outputs of shape"),
        (
            lambda: _apply(GroupNormalization(3)),
            "num_groups: expected a divisor of 2 channels, got 3",
        ),
        (lambda: _apply(MaxPool2D(5)), "size: expected at most 4, got 5"),
        (lambda: _apply(Activation("relo")), "function: expected a function in tf.nn, got 'relo'"),
        (lambda: _apply(Activation(tf.reduce_sum)), r"function: expected \[2, ...\] for inputs"),
        (
            lambda: _apply(Activation(tf.keras.layers.ReLU(dtype="float32"))),
            "function: .* of float64 .* of float32 from",
        ),
        (lambda: _apply(Activation("conv2d")), r"function: 'conv2d' does not fit inputs \[2, 4, 6"),
        (
            lambda: BayesianDense(2, SpatialInverseWishartPrior(9)),
            "prior: expected a spatial prior over the kernel's positions, 1, got one over 9",
        ),
        (lambda: SpatialInverseWishartPrior(1), "num_positions: expected at least 2, got 1"),
        (
            lambda: _apply(BayesianDense(2)),
            r"BayesianDense takes vectors \(put Flatten before it\)",
        ),
        (lambda: BayesianDense(0), "num_outputs: expected a positive integer, got 0"),
        (lambda: BayesianDense(2, "spatial"), "prior: expected one of"),
        (lambda: BayesianDense(2).fan_in, "expected a layer of a network, got one by itself"),
    ],
)
def test_bad_input(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# ---------------------------------------------------------------- priors


@pytest.mark.parametrize("kind", ["isotropic", "spatial", "spatial with bias"])
def test_precisions_are_those_of_their_matrices(kind: str) -> None:
    rng = np.random.default_rng(1)
    D = 7 if "bias" in kind else 6
    if kind == "isotropic":
        precision: Any = Isotropic(tf.constant([2.0, 3.0], tf.float64))
        G = np.sqrt([2.0, 3.0])[:, None, None] * np.eye(D)
    else:
        factor = np.tril(rng.uniform(0.5, 2.0, [2, 3, 3]))
        precision = Spatial(tf.constant(factor), tf.constant([4.0, 5.0], tf.float64))
        G = np.zeros([2, D, D])
        G[:, :3, :3] = G[:, 3:6, 3:6] = factor
        G[:, 6:, 6:] = np.array([4.0, 5.0])[:, None, None]
    rows = rng.standard_normal([1, 4, D])
    inverse = np.linalg.inv(G)
    for actual, expected in (
        (precision.whiten(rows), rows @ np.swapaxes(inverse, 1, 2)),
        (precision.unwhiten(rows), rows @ inverse),
        (precision.whiten_weights(rows), rows @ G),
        (precision.log_det_root(D), np.linalg.slogdet(G)[1]),
        (precision.diagonal(D), np.diagonal(G @ np.swapaxes(G, 1, 2), axis1=1, axis2=2)),
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
    gram = rng.standard_normal([1, 3, D, D])
    gram = gram + np.swapaxes(gram, 2, 3)
    expected = inverse[:, None] @ gram @ np.swapaxes(inverse, 1, 2)[:, None]
    np.testing.assert_allclose(precision.whiten_gram(tf.constant(gram)), expected, rtol=1e-10)


@pytest.mark.parametrize(
    "prior, fan_in, variance",
    [(ScalePrior(), 5, 2.0 / 5), (SpatialInverseWishartPrior(9), 19, 1.0 / 18)],
)
def test_random_precisions(prior: Any, fan_in: int, variance: float) -> None:
    """Draws have the expected covariance of weights; their divergences are average log ratios."""
    S = 20000
    shapes = prior.noise_shapes(S)
    noise = [tf.random.stateless_normal(shape, [1, 2], dtype=tf.float64) for shape in shapes]
    first = tf.eye(fan_in, dtype=tf.float64)[None, :1]
    from_prior = prior.draw(noise, fan_in, from_prior=True)
    np.testing.assert_allclose(from_prior.log_ratio, 0.0, atol=1e-9)
    np.testing.assert_allclose(from_prior.kl, 0.0, atol=1e-9)
    variances = np.sum(np.square(from_prior.precision.whiten(first)), axis=-1)
    np.testing.assert_allclose(variances.mean(), variance, rtol=0.1)
    for parameter in prior.trainable_parameters:
        parameter.assign(parameter + 0.3 * np.random.default_rng(0).uniform(size=parameter.shape))
    q = prior.draw(noise, fan_in)
    error = np.std(q.log_ratio) / np.sqrt(S)
    assert abs(np.mean(q.log_ratio) + q.kl[0]) < 4.5 * error
