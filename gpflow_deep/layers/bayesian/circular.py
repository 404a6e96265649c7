r"""
The design matrix of a convolution with circular boundaries, never written out (Ober & Aitchison 2021,
Appendix B): what X^T X has for a pair of kernel positions is a correlation of the images with themselves
that depends on the lag between the two only. A 3 x 3 kernel has 13 of them up to transposition, not 81.

Such correlations are the gradient of a convolution in its filters.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import tensorflow as tf

from ...numerics.linalg import leading_shape

__all__ = ["CircularPatches"]


class CircularPatches:
    """
    The patches of images, those at the borders continued on the other side, as a design matrix: its columns
    are ordered by (channel, row of the kernel, column of the kernel), and the constant comes last. Its rows
    are ordered by (image, row, column).

    :param images: [S, K, M, H, W, C].
    :param kernel_size: rows and columns of a patch.
    :param stride: from one patch to the next, both ways.
    :param before: rows and columns that the first patch has beyond the first ones of the image.
    :param constants: what the constant column has for each image [1, K, M]; ``None`` for no such column.
    """

    def __init__(
        self,
        images: tf.Tensor,
        kernel_size: tuple[int, int],
        stride: int,
        before: tuple[int, int],
        constants: tf.Tensor | None,
    ) -> None:
        self.images, self.kernel_size, self.stride = images, kernel_size, stride
        self.before, self.constants = before, constants
        self._size = int(images.shape[3]), int(images.shape[4])
        self._positions = tuple(-(-size // stride) for size in self._size)

    @property
    def num_observations(self) -> int:
        """Images times positions."""
        return int(self.images.shape[2] * np.prod(self._positions))

    @property
    def fan_in(self) -> int:
        """Channels times positions of the kernel, and the constant."""
        return self._num_weights + (self.constants is not None)

    @property
    def dtype(self) -> tf.DType:
        """See :class:`Design`."""
        return self.images.dtype

    @property
    def _num_weights(self) -> int:
        return int(self.images.shape[-1] * np.prod(self.kernel_size))

    def scale(self, roots: tf.Tensor) -> CircularPatches:
        """The rows of each image times a number [K, M]: those of the image times it."""
        constants = None if self.constants is None else self.constants * roots
        images = self.images * roots[:, :, None, None, None]
        return CircularPatches(images, self.kernel_size, self.stride, self.before, constants)

    def gram(self) -> tf.Tensor:
        """X^T X: [S, K, D, D]."""
        phases, lags, index = _lags(self.kernel_size, self.stride, self._size)
        S, K = leading_shape(self.images)
        by_phase = []
        for phase in phases:
            shift = [b - x for b, x in zip(self.before, phase)]
            images = tf.roll(self.images, shift, [3, 4]) if any(shift) else self.images
            others = images[:, :, :, :: self.stride, :: self.stride]
            by_phase.append(_correlate(images, others, lags, self.stride))
        blocks = tf.stack(by_phase, axis=1)  # [S K, phases, lags, lags, C, C]
        channels = blocks.shape[-1]
        blocks = tf.reshape(blocks, [S * K, -1, channels, channels])
        blocks = tf.concat([blocks, tf.linalg.matrix_transpose(blocks)], axis=1)
        grid = tf.gather(blocks, index, axis=1)  # [S K, p, p, C of the second, C of the first]
        grid = tf.transpose(grid, [0, 4, 1, 3, 2])
        gram = tf.reshape(grid, [S, K, self._num_weights, self._num_weights])
        if self.constants is None:
            return gram
        border = self._project(self._constant_rows())
        corner = tf.reduce_sum(tf.square(self._constant_rows()), axis=-1, keepdims=True)
        corner = tf.broadcast_to(corner, [S, K, 1, 1])
        right = tf.concat([tf.linalg.matrix_transpose(border), corner], axis=-2)
        return tf.concat([tf.concat([gram, border], axis=-2), right], axis=-1)

    def project(self, rows: tf.Tensor) -> tf.Tensor:
        """``rows`` X, for [1, T, observations], K = 1 or T: [S, T, D]."""
        S, K = leading_shape(self.images)
        T = rows.shape[1]
        rows = tf.reshape(rows, [1, K, T // K, self.num_observations])
        product = self._project(rows)
        if self.constants is not None:
            bias = tf.matmul(rows, self._constant_rows(), transpose_b=True)
            product = tf.concat([product, tf.broadcast_to(bias, [S, K, T // K, 1])], axis=-1)
        return tf.reshape(product, [S, T, self.fan_in])

    def _project(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows [1, K, R, observations] times the patches: [S, K, R, C p]."""
        S, K = leading_shape(self.images)
        M, R = self.images.shape[2], rows.shape[2]
        others = tf.reshape(tf.linalg.matrix_transpose(rows), [1, K, M, *self._positions, R])
        others = tf.broadcast_to(others, [S, K, M, *self._positions, R])
        (top, left), (height, width) = self.before, self.kernel_size
        lags = (-top, height - top), (-left, width - left)
        products = _correlate(self.images, others, lags, self.stride)  # [S K, rows, columns, C, R]
        return tf.reshape(tf.transpose(products, [0, 4, 3, 1, 2]), [S, K, R, self._num_weights])

    def _constant_rows(self) -> tf.Tensor:
        count = int(np.prod(self._positions))
        return tf.repeat(self.constants, count, axis=-1)[:, :, None]  # [1, K, 1, observations]


def _correlate(
    images: tf.Tensor,
    others: tf.Tensor,
    lags: tuple[tuple[int, int], tuple[int, int]],
    stride: int,
) -> tf.Tensor:
    """
    Sums over images and positions q of images[q stride + lag] others[q]^T, on a torus.

    :param images: [S, K, M, H, W, C].
    :param others: [S, K, M, positions, positions, R].
    :param lags: the first one and the one behind the last, of rows and of columns.
    :return: [S K, lags of rows, lags of columns, C, R].
    """
    for axis, (first, end) in enumerate(lags, start=3):
        size = int(images.shape[axis])
        if max(-first, end - 1) > size:  # more than once around
            images = tf.gather(images, np.arange(first, size + end - 1) % size, axis=axis)
            continue
        index = [slice(None)] * axis
        parts = [images]
        if first:
            parts.insert(0, images[(*index, slice(first, None))])
        if end > 1:
            parts.append(images[(*index, slice(end - 1))])
        images = tf.concat(parts, axis=axis)
    images = tf.reshape(images, [-1, *images.shape[2:]])
    others = tf.reshape(others, [-1, *others.shape[2:]])
    sizes = [*(end - first for first, end in lags), images.shape[-1], others.shape[-1]]

    def one(pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        strides = [1, stride, stride, 1]
        return tf.raw_ops.Conv2DBackpropFilter(
            input=pair[0],
            filter_sizes=sizes,
            out_backprop=pair[1],
            strides=strides,
            padding="VALID",
        )

    if images.shape[0] == 1:
        return one((images[0], others[0]))[None]
    return tf.map_fn(one, (images, others), fn_output_signature=images.dtype)


@cache
def _lags(
    kernel_size: tuple[int, int], stride: int, size: tuple[int, int]
) -> tuple[list[tuple[int, ...]], tuple[tuple[int, int], tuple[int, int]], np.ndarray]:
    """
    Which correlations there are, and where each of the p x p pairs of kernel positions has its own.

    Shifted by the stride, a pair has the same correlation where the stride divides the size of the images:
    then the first position counts by its remainder, its phase. With one phase the lags of half a plane are
    enough.

    :return: the phases; the lags from the first one to that behind the last, of rows and of columns; and the
        places [p, p] among (phase, lag of rows, lag of columns), those from the end of the list on being
        transposed.
    """
    periods = [stride if n % stride == 0 else k for n, k in zip(size, kernel_size)]
    counts = [min(period, k) for period, k in zip(periods, kernel_size)]
    phases = list(np.ndindex(*counts))
    rows, columns = kernel_size
    half = len(phases) == 1
    lags = ((0 if half else 1 - rows, rows), (1 - columns, columns))
    shape = [len(phases), *(end - first for first, end in lags)]
    positions = list(np.ndindex(*kernel_size))
    index = np.empty([len(positions)] * 2, np.int32)
    for i, a in enumerate(positions):
        phase = phases.index(tuple(x % period for x, period in zip(a, periods)))
        for j, b in enumerate(positions):
            lag = [y - x for x, y in zip(a, b)]
            turned = lag[0] < lags[0][0]
            lag = [-x for x in lag] if turned else lag
            place = np.ravel_multi_index([phase, *(x - f for x, (f, _) in zip(lag, lags))], shape)
            index[i, j] = place + turned * np.prod(shape)
    return phases, lags, index
