"""Convolutions with random weights, against patches written out."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpflow_deep.layers import BayesianConv2D
from gpflow_deep.layers.bayesian import SpatialInverseWishartPrior
from gpflow_deep.layers.bayesian.circular import CircularPatches, _lags

_RNG = np.random.default_rng(0)


def _patches(layer: BayesianConv2D, images: np.ndarray, mode: str) -> np.ndarray:
    """Patches [S, M, rows, columns, D] by a loop over the positions of the kernel."""
    rows, columns = layer.kernel_size
    top, left = layer._before
    pads = [(0, 0), (0, 0), (top, rows - 1 - top), (left, columns - 1 - left), (0, 0)]
    H, W = images.shape[2:4]
    if layer.padding == "valid" and mode == "constant":
        pads, H, W = [(0, 0)] * 5, H - rows + 1, W - columns + 1
    padded = np.pad(images, pads, mode=mode)
    taps = [
        padded[:, :, i : i + H, j : j + W, :][:, :, :: layer.stride, :: layer.stride]
        for i in range(rows)
        for j in range(columns)
    ]
    patches = np.stack(taps, axis=-1)  # [S, M, H, W, C, p]
    patches = patches.reshape([*patches.shape[:4], -1])
    if layer.bias:
        patches = np.concatenate([patches, np.ones_like(patches[..., :1])], axis=-1)
    return patches


layers = st.builds(
    BayesianConv2D,
    st.just(2),
    st.tuples(st.integers(1, 4), st.integers(1, 3)),
    st.integers(1, 3),
    st.sampled_from(["same", "valid"]),
    bias=st.booleans(),
)


@given(layers, st.integers(1, 6), st.integers(1, 7), st.sampled_from([1, 3]))
@settings(max_examples=60)
def test_design_is_that_of_the_patches(
    layer: BayesianConv2D, height: int, width: int, num_precisions: int
) -> None:
    images = _RNG.standard_normal([2, 3, height, width, 2])
    rows, columns = layer.kernel_size
    assume(layer.padding == "same" or (rows <= height and columns <= width))
    layer.connect(images.shape[2:])
    roots = _RNG.uniform(0.5, 2.0, [num_precisions, 3])
    design = layer.design(tf.constant(images)).scale(tf.constant(roots))
    patches = _patches(layer, images, "wrap")
    assert layer.num_positions == np.prod(patches.shape[2:4])
    explicit = patches.reshape([2, 1, -1, layer.fan_in]) * np.repeat(
        roots, layer.num_positions, axis=-1
    ).reshape([1, num_precisions, -1, 1])
    assert explicit.shape[2:] == (design.num_observations, design.fan_in)
    np.testing.assert_allclose(
        design.gram(), np.swapaxes(explicit, 2, 3) @ explicit, rtol=1e-10, atol=1e-12
    )
    rows = _RNG.standard_normal([1, 3, explicit.shape[2]])
    expected = rows[:, :, None] @ explicit
    np.testing.assert_allclose(
        design.project(tf.constant(rows)), expected[:, :, 0], rtol=1e-10, atol=1e-12
    )


@given(layers, st.sampled_from([(1, 1), (1, 3), (3, 1), (3, 3)]), st.integers(1, 5))
@settings(max_examples=40)
def test_outputs_are_those_of_the_patches(
    layer: BayesianConv2D, draws: tuple[int, int], height: int
) -> None:
    inputs, weights = draws
    images = _RNG.standard_normal([inputs, 2, height, 4, 2])
    assume(layer.padding == "same" or layer.kernel_size[0] <= height)
    layer.connect(images.shape[2:])
    W = _RNG.standard_normal([weights, 2, layer.fan_in])
    patches = _patches(layer, images, "constant")
    expected = patches[:, :, :, :, None] * W[:, None, None, None]
    expected = expected.sum(axis=-1)
    outputs = layer.apply(tf.constant(images), tf.constant(W))
    assert tuple(outputs.shape[2:]) == layer.output_shape
    np.testing.assert_allclose(outputs, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kernel_size, stride, count", [((3, 3), 1, 13), ((5, 5), 1, 41)])
def test_distinct_correlations(kernel_size: tuple[int, int], stride: int, count: int) -> None:
    """The places in use: those of one phase are its distinct lags, up to transposition."""
    phases, _, index = _lags(kernel_size, stride, (10, 10))
    assert len(phases) == 1
    used = {frozenset((index[i, j], index[j, i])) for i, j in np.ndindex(*index.shape)}
    assert len(used) == count


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_are_those_of_the_patches(stride: int) -> None:
    layer = BayesianConv2D(2, 3, stride)
    images = tf.Variable(_RNG.standard_normal([1, 2, 4, 6, 2]))
    V = tf.Variable(_RNG.standard_normal([1, 2, 2 * 24 // stride**2]))
    layer.connect(images.shape[2:])
    upstream = [_RNG.standard_normal([19, 19]), _RNG.standard_normal([2, 19])]

    def value(design: tf.Tensor) -> tf.Tensor:
        gram, cross = (
            (design.gram(), design.project(V))
            if isinstance(design, CircularPatches)
            else (
                tf.matmul(design, design, transpose_a=True),
                tf.matmul(V, design),
            )
        )
        return tf.reduce_sum(tf.sin(gram) * upstream[0]) + tf.reduce_sum(cross * upstream[1])

    def explicit() -> tf.Tensor:
        padded = tf.concat([images[:, :, -1:], images, images[:, :, :1]], axis=2)
        padded = tf.concat([padded[:, :, :, -1:], padded, padded[:, :, :, :1]], axis=3)
        patches = tf.image.extract_patches(
            padded[0], [1, 3, 3, 1], [1, stride, stride, 1], [1] * 4, "VALID"
        )
        patches = tf.reshape(patches, [1, -1, 9, 2])
        patches = tf.reshape(tf.transpose(patches, [0, 1, 3, 2]), [1, -1, 18])
        return tf.concat([patches, tf.ones_like(patches[..., :1])], axis=-1)

    results = []
    for make in (lambda: layer.design(images), explicit):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                result = value(make())
            slopes = tape.gradient(result, [images, V])
            along = tf.reduce_sum(tf.sin(slopes[0])) + tf.reduce_sum(tf.sin(slopes[1]))
        results.append([result, *slopes, outer.gradient(along, images)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"padding": "full"}, "padding: expected 'same' or 'valid', got 'full'"),
        ({"stride": 0}, "stride: expected a positive integer, got 0"),
        ({"kernel_size": (3, 0)}, "kernel_size: expected a positive integer, got 0"),
        ({"kernel_size": (3, 3, 3)}, "kernel_size: expected one or two numbers"),
        ({"prior": "flat"}, "prior: expected one of .*'spatial'.* got 'flat'"),
        ({"kernel_size": 1, "prior": "spatial"}, "prior: expected one of"),
        ({"prior": SpatialInverseWishartPrior(4)}, "prior: expected .* positions, 9, got .* 4"),
    ],
)
def test_bad_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BayesianConv2D(2, **arguments)


def test_inputs_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"takes images \[H, W, C\], got inputs of shape \[7\]"):
        BayesianConv2D(2).connect((7,))
    with pytest.raises(ValueError, match="kernel_size: expected at most the size of the images"):
        BayesianConv2D(2, 5, padding="valid").connect((4, 6, 1))
    layer = BayesianConv2D(2)
    layer.connect((4, 4, 1))
    with pytest.raises(ValueError, match=r"has had inputs of shape \[4, 4, 1\] before, got"):
        layer.connect((4, 4, 2))
