"""Transforms that only move numbers: where they put them, and back, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from gpflow_deep.numerics.bijectors import PackedBlocks, PackedTriangular

_PATTERN = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 1, 1]], dtype=bool)


def _mask(pattern: np.ndarray, sizes: list[int]) -> np.ndarray:
    return np.tril(np.repeat(np.repeat(pattern, sizes, axis=0), sizes, axis=1))


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    coupled=st.lists(st.booleans(), min_size=36, max_size=36),
    batch=st.lists(st.integers(1, 2), max_size=2),
)
def test_blocks_hold_every_number_once(
    sizes: list[int], coupled: list[bool], batch: list[int]
) -> None:
    T = len(sizes)
    pattern = np.tril(np.reshape(coupled, [6, 6])[:T, :T], -1) | np.eye(T, dtype=bool)
    mask = _mask(pattern, sizes)
    transform = PackedBlocks(pattern, sizes)
    free = 1.0 + np.arange(np.prod(batch, dtype=int) * mask.sum()).reshape([*batch, mask.sum()])
    matrices = transform.forward(tf.constant(free)).numpy()
    assert matrices.shape == (*batch, *mask.shape)
    assert not matrices[..., ~mask].any()
    np.testing.assert_array_equal(np.sort(matrices[..., mask], axis=-1), free)
    # Of a copy, which no cache of the transform knows.
    np.testing.assert_array_equal(transform.inverse(tf.constant(matrices.copy())), free)


@pytest.mark.parametrize("transform", ["blocks", "entries"])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_moved_back(transform: str, compiled: bool) -> None:
    sizes = [3, 2, 2, 4]
    mask = _mask(_PATTERN, sizes)
    bijector = PackedBlocks(_PATTERN, sizes) if transform == "blocks" else PackedTriangular(mask)
    rng = np.random.default_rng(0)
    free, upstream = rng.standard_normal([2, mask.sum()]), rng.standard_normal([2, 11, 11])

    def slope(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            matrices = bijector.forward(x)
        return tape.gradient(matrices, x, output_gradients=weights)

    if compiled:  # for any number of matrices
        unknown = [tf.TensorSpec([None, *x.shape[1:]], tf.float64) for x in (free, upstream)]
        slope = tf.function(slope, input_signature=unknown)
    expected = bijector.inverse(tf.constant(upstream))
    np.testing.assert_array_equal(slope(tf.constant(free), tf.constant(upstream)), expected)
    unpacked = bijector.forward(tf.constant(free))
    np.testing.assert_allclose(
        np.sum(free * expected, axis=1), np.sum(upstream * unpacked, axis=(1, 2)), rtol=1e-12
    )


def test_matrices_of_another_size_are_refused() -> None:
    transform = PackedTriangular.lower(5)
    for wrong in (np.ones((5, 1)), np.ones((2, 4, 4))):
        with pytest.raises(ValueError, match=r"\[..., 5, 5\], got shape .*q_diag=True"):
            transform.inverse(tf.constant(wrong))


def test_blocks_of_one_size_share_their_indices() -> None:
    """Of a matrix [1200, 1200] a gather keeps 9 MB of them in the graph."""
    pattern = np.tril(np.ones([12, 12], dtype=bool))
    transform = PackedBlocks(pattern, [100] * 12)
    x = tf.TensorSpec([1, 1200 * 1201 // 2], tf.float64)
    graph = tf.function(transform.forward).get_concrete_function(x).graph.as_graph_def()
    assert graph.ByteSize() < 200_000
