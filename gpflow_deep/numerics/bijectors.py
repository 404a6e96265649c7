"""Transforms of parameters: free entries to triangular factors, and a change of units."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ["PackedTriangular", "in_units_of"]


def in_units_of(scale: float) -> tfp.bijectors.Bijector:
    """
    A free number times ``scale``, in the default float: tfp would take a Python number for float32.

    :param scale: what one unit of the free number is worth.
    """
    return tfp.bijectors.Scale(np.asarray(scale, gpflow.default_float()))


class PackedTriangular(tfp.bijectors.Bijector):
    """
    Vectors of free entries [..., K] to matrices [..., size, size] that are zero outside a mask.

    Like GPflow's ``triangular()``, it only moves numbers, so that ``gpflow.optimizers.NaturalGradient``
    can map gradients through it. It allows any mask, and is several times faster: one gather each way.

    :param mask: [size, size], boolean; for example lower triangular.
    """

    def __init__(self, mask: np.ndarray) -> None:
        self._size = len(mask)
        self._positions = np.flatnonzero(mask).astype(np.int32)  # of the free entries in the matrix
        # Where each entry of the matrix comes from; entry K is a zero put after the free ones.
        self._sources = np.full(mask.size, len(self._positions), np.int32)
        self._sources[self._positions] = np.arange(len(self._positions))
        super().__init__(
            forward_min_event_ndims=1,
            inverse_min_event_ndims=2,
            is_constant_jacobian=True,
            parameters={"mask": mask},
            name="packed_triangular",
        )

    @classmethod
    def lower(cls, size: int) -> PackedTriangular:
        """The transform of a full lower-triangular matrix."""
        return cls(np.tril(np.ones([size, size], dtype=bool)))

    # The gradient of one is the other; TensorFlow's, of a gather from the last axis, is far slower.

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def unpack(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            padded = tf.pad(x, [[0, 0]] * (x.shape.rank - 1) + [[0, 1]])
            flat = tf.gather(padded, self._sources, axis=-1)
            return tf.reshape(flat, _shape(x, 1, [self._size, self._size])), self._inverse

        matrices = unpack(x)
        matrices.set_shape(self._forward_event_shape(x.shape))
        return matrices

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def pack(y: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            flat = tf.reshape(y, _shape(y, 2, [self._size**2]))
            return tf.gather(flat, self._positions, axis=-1), self._forward

        return pack(y)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.zeros([], x.dtype)

    def _forward_event_shape(self, input_shape: tf.TensorShape) -> tf.TensorShape:
        return input_shape[:-1].concatenate([self._size, self._size])

    def _inverse_event_shape(self, output_shape: tf.TensorShape) -> tf.TensorShape:
        return output_shape[:-2].concatenate([len(self._positions)])

    def _forward_event_shape_tensor(self, input_shape: tf.Tensor) -> tf.Tensor:
        return tf.concat([input_shape[:-1], [self._size, self._size]], axis=0)

    def _inverse_event_shape_tensor(self, output_shape: tf.Tensor) -> tf.Tensor:
        return tf.concat([output_shape[:-2], [len(self._positions)]], axis=0)


def _shape(x: tf.Tensor, num_axes: int, last: list[int]) -> list[int] | tf.Tensor:
    """That of ``x`` with other last axes in place of the last ``num_axes``; static where it is known."""
    if x.shape.is_fully_defined():
        return [*x.shape[:-num_axes], *last]
    return tf.concat([tf.shape(x)[:-num_axes], last], axis=0)
