"""Convolutions with random weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ...validation import check_choice, check_positive_integer, check_positive_integers
from .base import BayesianLayer, Shape
from .circular import CircularPatches
from .priors import WeightPrior

__all__ = ["BayesianConv2D"]


class BayesianConv2D(BayesianLayer):
    """
    A convolution of images [H, W, C] with random weights, without an activation.

    Weights are ordered by (input channel, row, column), the bias last. Pseudo-observations are of the
    convolution with circular boundaries, at all positions, whatever the padding is (Ober & Aitchison 2021,
    Appendix B).

    >>> layer = gd.layers.BayesianConv2D(8, kernel_size=3, stride=2)
    >>> layer.connect((28, 28, 1))
    (14, 14, 8)

    :param num_outputs: number of channels of the output, T.
    :param kernel_size: rows and columns, or one number for both.
    :param stride: both ways.
    :param padding: "same", with zeros: (size - 1) // 2 of them before the first row and size // 2 behind the
        last; or "valid".
    :param prior: see :class:`~gpflow_deep.layers.bayesian.BayesianLayer`.
    :param bias: whether the output's channels have a bias, which counts as one of their D inputs.
    :raises ValueError: for other values.
    """

    def __init__(
        self,
        num_outputs: int,
        kernel_size: int | tuple[int, int] = 3,
        stride: int = 1,
        padding: str = "same",
        prior: str | WeightPrior = "neal",
        bias: bool = True,
        *,
        name: str | None = None,
    ) -> None:
        if isinstance(kernel_size, (Sequence, np.ndarray)):
            sizes = check_positive_integers(kernel_size, "kernel_size")
        else:
            sizes = [check_positive_integer(kernel_size, "kernel_size")] * 2
        if len(sizes) != 2:
            raise ValueError(f"kernel_size: expected one or two numbers, got {kernel_size!r}.")
        self._kernel_size = tf.TensorShape(sizes)
        super().__init__(num_outputs, prior, bias, sizes[0] * sizes[1], name=name)
        self.stride = check_positive_integer(stride, "stride")
        self.padding = check_choice(padding, "padding", ("same", "valid"))

    @property
    def kernel_size(self) -> tuple[int, int]:
        """Rows and columns of the kernel."""
        rows, columns = self._kernel_size
        return rows, columns

    @property
    def fan_in(self) -> int:
        """Inputs of a unit, the constant included."""
        rows, columns = self.kernel_size
        return self.input_shape[-1] * rows * columns + self.bias

    @property
    def num_positions(self) -> int:  # type: ignore[override]
        """Of the kernel in an image with circular boundaries."""
        height, width, _ = self.input_shape
        return -(-height // self.stride) * -(-width // self.stride)

    @property
    def _before(self) -> tuple[int, int]:
        """Zeros before the first row and column."""
        if self.padding == "valid":
            return 0, 0
        rows, columns = self.kernel_size
        return (rows - 1) // 2, (columns - 1) // 2

    def _connect(self, input_shape: Shape) -> Shape:
        self._expect(input_shape, 3, "images [H, W, C]")
        sizes = []
        for size, kernel in zip(input_shape, self.kernel_size):
            if kernel > size and self.padding == "valid":
                raise ValueError(
                    f"kernel_size: expected at most the size of the images, {list(input_shape[:2])}, got"
                    f' {list(self.kernel_size)}. Pool less before it, take a smaller one, or padding "same".'
                )
            span = size if self.padding == "same" else size - kernel + 1
            sizes.append(-(-span // self.stride))
        return (*sizes, self.num_outputs)

    def design(self, X: tf.Tensor) -> CircularPatches:
        """See :meth:`BayesianLayer.design`."""
        constants = tf.ones([1, 1, X.shape[1]], X.dtype) if self.bias else None
        return CircularPatches(X[:, None], self.kernel_size, self.stride, self._before, constants)

    def apply(self, X: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """See :meth:`BayesianLayer.apply`."""
        rows, columns = self.kernel_size
        channels, T = X.shape[-1], self.num_outputs
        if self.bias:
            weights, bias = weights[..., :-1], weights[..., -1]
        filters = tf.reshape(weights, [-1, T, channels, rows, columns])
        filters = tf.transpose(filters, [0, 3, 4, 2, 1])  # [S, rows, columns, C, T]
        if X.shape[0] == 1:
            # One convolution with the filters of all draws.
            stacked = tf.transpose(filters, [1, 2, 3, 0, 4])
            stacked = tf.reshape(stacked, [rows, columns, channels, -1])
            outputs = self._convolve(X[0], stacked)
            shape = [*tf.unstack(tf.shape(outputs)[:3]), -1, T]
            outputs = tf.transpose(tf.reshape(outputs, shape), [3, 0, 1, 2, 4])
        elif weights.shape[0] == 1:
            flat = self._convolve(tf.reshape(X, [-1, *X.shape[2:]]), filters[0])
            outputs = tf.reshape(flat, [*tf.unstack(tf.shape(X)[:2]), *flat.shape[1:]])
        else:
            outputs = tf.map_fn(
                lambda pair: self._convolve(*pair), (X, filters), fn_output_signature=X.dtype
            )
        outputs = tf.ensure_shape(outputs, [None, None, *self.output_shape])
        return outputs + bias[:, None, None, None, :] if self.bias else outputs

    def _convolve(self, images: tf.Tensor, filters: tf.Tensor) -> tf.Tensor:
        if self.padding == "same":
            pads = [[b, k - 1 - b] for b, k in zip(self._before, self.kernel_size)]
            images = tf.pad(images, [[0, 0], *pads, [0, 0]])
        return tf.nn.conv2d(images, filters, self.stride, "VALID")
