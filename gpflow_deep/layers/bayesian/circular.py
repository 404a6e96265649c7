r"""
The design matrix of a convolution with circular boundaries, never written out (Ober & Aitchison 2021,
Appendix B): X^T X has for each pair of kernel positions a correlation of the images with themselves. It
depends on the lag between the two only, so that a 3 x 3 kernel has 13 of them, and not 81.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
import tensorflow as tf

from ...numerics.linalg import leading_shape

__all__ = ["CircularPatches"]

#: From images [S, K, M, H, W, C] to rows [S, K, observations, C], linear.
Rows = Callable[[tf.Tensor], tf.Tensor]


class CircularPatches:
    """
    The patches of images, those at the borders continued on the other side, as a design matrix: its columns
    are ordered by (channel, row of the kernel, column of the kernel), and the constant comes last. Its rows
    are ordered by (image, row, column).

    :param images: [S, K, M, H, W, C].
    :param kernel_size: rows and columns of a patch.
    :param stride: from one patch to the next, both ways.
    :param shift: of the patches, against their first position starting in the image's corner.
    :param constants: what the constant column has for each image [1, K, M]; ``None`` for no such column.
    """

    def __init__(
        self,
        images: tf.Tensor,
        kernel_size: tuple[int, int],
        stride: int,
        shift: tuple[int, int],
        constants: tf.Tensor | None,
    ) -> None:
        self.images, self.kernel_size, self.stride = images, kernel_size, stride
        self.shift, self.constants = shift, constants
        self._size = int(images.shape[3]), int(images.shape[4])
        self._taps: list[Rows] = [
            partial(_rows, offset=(shift[0] - i, shift[1] - j), stride=stride)
            for i, j in np.ndindex(*kernel_size)
        ]

    @property
    def num_observations(self) -> int:
        """Images times positions."""
        return int(self.images.shape[2]) * self._num_positions

    @property
    def _num_positions(self) -> int:
        return int(np.prod([-(-size // self.stride) for size in self._size]))

    @property
    def fan_in(self) -> int:
        """Channels times positions of the kernel, and the constant."""
        return int(self.images.shape[-1]) * len(self._taps) + (self.constants is not None)

    def scale(self, roots: tf.Tensor) -> CircularPatches:
        """The rows of each image times a number [K, M]: those of the image times it."""
        constants = None if self.constants is None else self.constants * roots
        images = self.images * roots[:, :, None, None, None]
        return CircularPatches(images, self.kernel_size, self.stride, self.shift, constants)

    def gram(self) -> tf.Tensor:
        """X^T X: [S, K, D, D]."""
        pairs, index = _distinct_pairs(self.kernel_size, self.stride, self._size)
        blocks = [
            _product(self.images, self._taps[i], self.images, self._taps[j]) for i, j in pairs
        ]
        blocks += [tf.linalg.matrix_transpose(block) for block in blocks]
        grid = tf.gather(tf.stack(blocks, axis=2), index, axis=2)  # [S, K, p, p, C, C]
        grid = tf.transpose(grid, [0, 1, 4, 2, 5, 3])
        size = self.fan_in - (self.constants is not None)
        gram = tf.reshape(grid, [*leading_shape(grid), size, size])
        if self.constants is None:
            return gram
        border = self._project(_constant_rows(self.constants, self._num_positions))
        corner = tf.reduce_sum(tf.square(self.constants), axis=-1) * self._num_positions
        corner = tf.broadcast_to(corner[..., None, None], tf.shape(border[..., :1]))
        right = tf.concat([tf.linalg.matrix_transpose(border), corner], axis=-2)
        return tf.concat([tf.concat([gram, border], axis=-2), right], axis=-1)

    def project(self, rows: tf.Tensor) -> tf.Tensor:
        """``rows`` X, for [1, T, observations], K = 1 or T: [S, T, D]."""
        K = self.images.shape[1]
        T = rows.shape[1]
        rows = tf.reshape(rows, [-1, K, T // K, self.num_observations])
        product = self._project(rows)
        if self.constants is not None:
            ones = _constant_rows(self.constants, self._num_positions)
            bias = tf.matmul(rows, ones, transpose_b=True)
            shape = tf.concat([tf.shape(product)[:-1], [1]], axis=0)
            product = tf.concat([product, tf.broadcast_to(bias, shape)], axis=-1)
        return tf.reshape(product, [-1, T, self.fan_in])

    def _project(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows [1, K, R, observations] times the patches: [S, K, R, C p]."""
        columns = tf.linalg.matrix_transpose(rows)
        by_tap = [_product(columns, _as_they_are, self.images, tap) for tap in self._taps]
        stacked = tf.stack(by_tap, axis=-1)  # [S, K, R, C, p]
        size = self.fan_in - (self.constants is not None)
        return tf.reshape(stacked, [*leading_shape(stacked), stacked.shape[2], size])


def _rows(images: tf.Tensor, offset: tuple[int, int], stride: int) -> tf.Tensor:
    """What one position of the kernel sees, patch by patch."""
    if any(offset):
        images = tf.roll(images, offset, axis=[3, 4])
    images = images[:, :, :, ::stride, ::stride]
    return tf.reshape(images, [*leading_shape(images), -1, images.shape[-1]])


def _as_they_are(rows: tf.Tensor) -> tf.Tensor:
    return rows


def _constant_rows(constants: tf.Tensor, num_positions: int) -> tf.Tensor:
    return tf.repeat(constants, num_positions, axis=-1)[:, :, None]  # [1, K, 1, observations]


def _product(left: tf.Tensor, left_rows: Rows, right: tf.Tensor, right_rows: Rows) -> tf.Tensor:
    """
    ``left_rows(left)^T right_rows(right)``: [S, K, C, C']. The rows are made again for the gradient, so that
    no more than one pair of them is alive at any time.
    """

    @tf.custom_gradient
    def product(left: tf.Tensor, right: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape(persistent=True) as tape:
                tape.watch([left, right])
                a, b = left_rows(left), right_rows(right)
            d_a = _sum_to(tf.matmul(b, upstream, transpose_b=True), a)
            d_b = _sum_to(tf.matmul(a, upstream), b)
            d_left = tape.gradient(a, left, output_gradients=d_a)
            d_right = tape.gradient(b, right, output_gradients=d_b)
            return [d_left, d_right]

        return tf.matmul(left_rows(left), right_rows(right), transpose_a=True), gradient

    return product(left, right)


def _sum_to(gradient: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Undo the broadcasting of the first two axes."""
    for axis in range(2):
        if like.shape[axis] == 1 and gradient.shape[axis] != 1:
            gradient = tf.reduce_sum(gradient, axis=axis, keepdims=True)
    return gradient


@cache
def _distinct_pairs(
    kernel_size: tuple[int, int], stride: int, size: tuple[int, int]
) -> tuple[Sequence[tuple[int, int]], np.ndarray]:
    """
    Pairs of kernel positions whose correlations are all that there are, up to transposition.

    Shifted by the stride, a pair has the same correlation, where the stride divides the size of the images.

    :return: Q pairs, and for each of p x p pairs its place among these, from Q on with transposition.
    """
    positions = list(np.ndindex(*kernel_size))
    places: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    pairs: list[tuple[int, int]] = []
    index = np.zeros([len(positions)] * 2, np.int32)
    transposed = np.zeros_like(index, dtype=bool)
    for i, a in enumerate(positions):
        for j, b in enumerate(positions):
            if (key := _canonical(a, b, stride, size)) in places:
                index[i, j] = places[key]
            elif (key := _canonical(b, a, stride, size)) in places:
                index[i, j], transposed[i, j] = places[key], True
            else:
                index[i, j] = places[_canonical(a, b, stride, size)] = len(pairs)
                pairs.append((i, j))
    return pairs, index + len(pairs) * transposed


def _canonical(
    a: tuple[int, ...], b: tuple[int, ...], stride: int, size: tuple[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The pair's representative among those shifted by multiples of the stride, on a torus."""
    shifts = [x - x % stride if n % stride == 0 else 0 for x, n in zip(a, size)]
    first, second = (
        tuple((x - shift) % n for x, shift, n in zip(pair, shifts, size)) for pair in (a, b)
    )
    return first, second
