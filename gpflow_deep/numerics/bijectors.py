"""Transforms of parameters: free entries to triangular factors, and a change of units."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ["PackedBlocks", "PackedTriangular", "in_units_of"]


def in_units_of(scale: float) -> tfp.bijectors.Bijector:
    """
    A free number times ``scale``, in the default float: tfp would take a Python number for float32.

    :param scale: what one unit of the free number is worth.
    """
    return tfp.bijectors.Scale(np.asarray(scale, gpflow.default_float()))


class _Moves(tfp.bijectors.Bijector):
    """
    Vectors of free entries [..., K] to matrices [..., size, size] with zeros, only moving numbers.

    :param size: of the matrices.
    :param num_free: K.
    :param parameters: what the transform is made of.
    """

    def __init__(self, size: int, num_free: int, name: str, parameters: dict[str, Any]) -> None:
        self._size, self._num_free = size, num_free
        super().__init__(
            forward_min_event_ndims=1,
            inverse_min_event_ndims=2,
            is_constant_jacobian=True,
            parameters=parameters,
            name=name,
        )

    @abstractmethod
    def _unpack(self, x: tf.Tensor) -> tf.Tensor:
        """Matrices of vectors."""

    @abstractmethod
    def _pack(self, y: tf.Tensor) -> tf.Tensor:
        """Vectors of matrices."""

    # The gradient of one is the other; TensorFlow's, of a gather from the last axis, is far slower.

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        matrices = tf.custom_gradient(lambda x: (self._unpack(x), self._free_entries))(x)
        matrices.set_shape(self._forward_event_shape(x.shape))
        return matrices

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        if not y.shape[-2:].is_compatible_with([self._size, self._size]):
            hint = (
                "the q_sqrt [M, T] of an SVGP with q_diag=True are the diagonals of such [T, M, M]"
            )
            if y.shape.rank == 3 and y.shape[0] * y.shape[1] == self._size:
                hint = (
                    "here all outputs of a layer have one covariance; those [T, M, M] of an SVGP, each of an"
                    " output alone, are what posterior=MeanField has"
                )
            raise ValueError(
                f"expected matrices [..., {self._size}, {self._size}], got shape {y.shape}; {hint}."
            )
        return self._free_entries(y)

    def _free_entries(self, y: tf.Tensor) -> tf.Tensor:
        return tf.custom_gradient(lambda y: (self._pack(y), self._forward))(y)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.zeros([], x.dtype)

    def _forward_event_shape(self, input_shape: tf.TensorShape) -> tf.TensorShape:
        return input_shape[:-1].concatenate([self._size, self._size])

    def _inverse_event_shape(self, output_shape: tf.TensorShape) -> tf.TensorShape:
        return output_shape[:-2].concatenate([self._num_free])

    def _forward_event_shape_tensor(self, input_shape: tf.Tensor) -> tf.Tensor:
        return tf.concat([input_shape[:-1], [self._size, self._size]], axis=0)

    def _inverse_event_shape_tensor(self, output_shape: tf.Tensor) -> tf.Tensor:
        return tf.concat([output_shape[:-2], [self._num_free]], axis=0)


class PackedTriangular(_Moves):
    """
    Vectors of free entries [..., K] to matrices [..., size, size] that are zero outside a mask.

    Like GPflow's ``triangular()``, it only moves numbers, so that ``gpflow.optimizers.NaturalGradient``
    can map gradients through it. It allows any mask, and is several times faster: one gather each way.

    :param mask: [size, size], boolean; for example lower triangular.
    """

    def __init__(self, mask: np.ndarray) -> None:
        size = len(mask)
        self._positions = np.flatnonzero(mask).astype(np.int32)  # of the free entries in the matrix
        # Where each entry of the matrix comes from; entry K is a zero put after the free ones.
        self._sources = np.full(mask.size, len(self._positions), np.int32)
        self._sources[self._positions] = np.arange(len(self._positions))
        super().__init__(size, len(self._positions), "packed_triangular", {"mask": mask})

    @classmethod
    def lower(cls, size: int) -> PackedTriangular:
        """The transform of a full lower-triangular matrix."""
        return cls(np.tril(np.ones([size, size], dtype=bool)))

    def _unpack(self, x: tf.Tensor) -> tf.Tensor:
        padded = tf.pad(x, [[0, 0]] * (x.shape.rank - 1) + [[0, 1]])
        flat = tf.gather(padded, self._sources, axis=-1)
        return tf.reshape(flat, _shape(x, 1, [self._size, self._size]))

    def _pack(self, y: tf.Tensor) -> tf.Tensor:
        flat = tf.reshape(y, _shape(y, 2, [self._size**2]))
        return tf.gather(flat, self._positions, axis=-1)


class PackedBlocks(_Moves):
    """
    Vectors of free entries [..., K] to lower-triangular matrices [..., size, size] of blocks, some of which
    are zero.

    By whole blocks: of a large matrix a gather takes twice the time, and megabytes of indices. Those below
    the diagonal come first, row after row, and side by side as one; then the diagonal ones.

    :param pattern: [T, T], boolean, lower triangular with a full diagonal: which blocks are not zero.
    :param sizes: of the T blocks.
    """

    def __init__(self, pattern: np.ndarray, sizes: Sequence[int]) -> None:
        ends = np.cumsum(sizes)
        self._rows = list(zip((ends - sizes).tolist(), ends.tolist()))
        #: Of each row of blocks the columns, from and to, of runs of blocks below the diagonal.
        self._runs = []
        for i, row in enumerate(pattern):
            runs = groupby(range(i), key=row.__getitem__)
            blocks = [list(run) for free, run in runs if free]
            self._runs.append([(self._rows[run[0]][0], self._rows[run[-1]][1]) for run in blocks])
        #: The diagonal blocks: how many of a size follow each other, and how they are packed.
        self._diagonal = [
            (len(list(run)), PackedTriangular.lower(size)) for size, run in groupby(map(int, sizes))
        ]
        self._lengths = [
            (end - start) * (right - left)
            for (start, end), runs in zip(self._rows, self._runs)
            for left, right in runs
        ]
        self._lengths += [count * triangle._num_free for count, triangle in self._diagonal]
        parameters = {"pattern": pattern, "sizes": sizes}
        super().__init__(int(ends[-1]), sum(self._lengths), "packed_blocks", parameters)

    def _unpack(self, x: tf.Tensor) -> tf.Tensor:
        pieces = iter(tf.split(x, self._lengths, axis=-1))
        rectangles = [
            [tf.reshape(next(pieces), _shape(x, 1, [end - start, r - l])) for l, r in runs]
            for (start, end), runs in zip(self._rows, self._runs)
        ]
        diagonal: list[tf.Tensor] = []
        for count, triangle in self._diagonal:
            packed = tf.reshape(next(pieces), _shape(x, 1, [count, triangle._num_free]))
            diagonal += tf.unstack(triangle._unpack(packed), axis=-3)
        rows = []
        for (start, end), runs, blocks, own in zip(self._rows, self._runs, rectangles, diagonal):
            parts, at = [], 0
            for (left, right), block in zip([*runs, (start, end)], [*blocks, own]):
                parts += [tf.zeros(_shape(x, 1, [end - start, left - at]), x.dtype), block]
                at = right
            parts.append(tf.zeros(_shape(x, 1, [end - start, self._size - end]), x.dtype))
            rows.append(tf.concat(parts, axis=-1))
        return tf.concat(rows, axis=-2)

    def _pack(self, y: tf.Tensor) -> tf.Tensor:
        pieces = [
            tf.reshape(y[..., start:end, l:r], _shape(y, 2, [(end - start) * (r - l)]))
            for (start, end), runs in zip(self._rows, self._runs)
            for l, r in runs
        ]
        diagonal = [y[..., start:end, start:end] for start, end in self._rows]
        for count, triangle in self._diagonal:
            packed = triangle._pack(tf.stack(diagonal[:count], axis=-3))
            pieces.append(tf.reshape(packed, _shape(y, 2, [count * triangle._num_free])))
            del diagonal[:count]
        return tf.concat(pieces, axis=-1)


def _shape(x: tf.Tensor, num_axes: int, last: list[int]) -> list[int] | tf.Tensor:
    """That of ``x`` with other last axes in place of the last ``num_axes``; static where it is known."""
    if x.shape.is_fully_defined():
        return [*x.shape[:-num_axes], *last]
    return tf.concat([tf.shape(x)[:-num_axes], last], axis=0)
