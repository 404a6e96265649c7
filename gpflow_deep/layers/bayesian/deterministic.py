"""The layers of a network that have no random weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter

from ...validation import check_number, check_positive_integer
from ..networks import as_module
from .base import NetworkLayer, Path, Shape, connect, random_layers, walk

__all__ = [
    "Activation",
    "AveragePool2D",
    "Flatten",
    "GlobalAveragePool2D",
    "GroupNormalization",
    "MaxPool2D",
    "Residual",
]


class _Deterministic(NetworkLayer):
    """A function of one point's input."""

    @abstractmethod
    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """From points [B, *input_shape] to [B, *output_shape]."""

    def walk(self, X: tf.Tensor) -> Path:
        """See :meth:`NetworkLayer.walk`."""
        yield from ()  # nothing random on the way
        outputs = self(tf.reshape(X, [-1, *self.input_shape]))
        S = tf.shape(X)[0] if X.shape[0] is None else X.shape[0]
        N = tf.shape(X)[1] if X.shape[1] is None else X.shape[1]
        return tf.reshape(outputs, [S, N, *self.output_shape])


class Activation(_Deterministic):
    """
    Any function of points [B, ...], such as ``tf.nn.relu``, a ``tf.Module`` or a layer of Keras, of the
    default float. Variables of modules and layers are trained with the model. Layers of Keras are called as
    for predictions: ``Dropout``, ``GaussianNoise`` and the averages of ``BatchNormalization`` do nothing.

    :param function: the function, or its name in ``tf.nn``.
    :raises ValueError: for a name that is not there; when the layer is connected, where the function does not
        take such inputs or returns another dtype.
    """

    def __init__(
        self, function: str | Callable[[tf.Tensor], tf.Tensor] = "relu", *, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        if isinstance(function, str):
            if not callable(getattr(tf.nn, function, None)):
                raise ValueError(f"function: expected a function in tf.nn, got {function!r}.")
        elif not callable(function):
            raise TypeError(f"function: expected a function or a name, got {function!r}.")
        self._function = function

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """The function's values."""
        function = self._function
        return getattr(tf.nn, function)(X) if isinstance(function, str) else function(X)

    def _connect(self, input_shape: Shape) -> Shape:
        X = tf.zeros([2, *input_shape], gpflow.default_float())
        try:
            outputs = self(X)  # a layer of Keras makes its variables now
        except Exception as error:
            raise ValueError(
                f"function: {self._function!r} does not fit inputs {list(X.shape)} of {X.dtype.name}: {error}"
            ) from error
        if not tf.is_tensor(outputs) or outputs.shape[:1] != [2] or outputs.dtype != X.dtype:
            got = f"{outputs.shape} of {outputs.dtype.name}" if tf.is_tensor(outputs) else outputs
            raise ValueError(
                f"function: expected [2, ...] for inputs [2, ...] of {X.dtype.name} and of that dtype,"
                f" got {got} from {self._function!r}."
            )
        if not isinstance(self._function, str):
            self._function = as_module(self._function)
        return tuple(outputs.shape[1:])


class Flatten(_Deterministic):
    """Images as vectors."""

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """[B, numbers of one input]."""
        return tf.reshape(X, [-1, self.input_dim])

    def _connect(self, input_shape: Shape) -> Shape:
        return (int(np.prod(input_shape)),)


class _Pool2D(_Deterministic):
    """
    Pooling of images over windows side by side; what is left over at the border is dropped.

    :param size: rows and columns of a window.
    """

    def __init__(self, size: int = 2, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.size = check_positive_integer(size, "size")

    def _connect(self, input_shape: Shape) -> Shape:
        self._expect(input_shape, 3, "images [H, W, C]")
        height, width, channels = input_shape
        if self.size > min(height, width):
            raise ValueError(f"size: expected at most {min(height, width)}, got {self.size}.")
        return height // self.size, width // self.size, channels


class MaxPool2D(_Pool2D):
    """
    The largest value of each window and channel.

    :param size: rows and columns of a window.
    """

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """[B, H / size, W / size, C]."""
        largest = tf.nn.max_pool2d(X, self.size, self.size, "VALID")
        # TensorFlow passes over NaN, and has the lowest number where there is nothing else.
        missing = tf.cast(tf.math.is_nan(X), X.dtype)
        missing = tf.nn.max_pool2d(missing, self.size, self.size, "VALID")
        return tf.where(missing > 0.0, tf.cast(np.nan, X.dtype), largest)


class AveragePool2D(_Pool2D):
    """
    The mean of each window and channel.

    :param size: rows and columns of a window.
    """

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """[B, H / size, W / size, C]."""
        return tf.nn.avg_pool2d(X, self.size, self.size, "VALID")


class GlobalAveragePool2D(_Deterministic):
    """The mean of each channel: vectors."""

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """[B, C]."""
        return tf.reduce_mean(X, axis=[1, 2])

    def _connect(self, input_shape: Shape) -> Shape:
        self._expect(input_shape, 3, "images [H, W, C]")
        return input_shape[-1:]


class GroupNormalization(_Deterministic):
    """
    Each point's values less their mean, over their standard deviation, group by group of channels; then each
    channel times a scale plus a shift, which are trained (Wu & He 2018). Other points do not enter, so that
    inducing points and data pass through the same function.

    :param num_groups: 1 for layer normalisation.
    :param epsilon: added to the variances.
    """

    def __init__(
        self, num_groups: int = 1, *, epsilon: float = 1e-5, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self.num_groups = check_positive_integer(num_groups, "num_groups")
        self.epsilon = check_number(epsilon, "epsilon", low=0.0)

    def _connect(self, input_shape: Shape) -> Shape:
        channels = input_shape[-1]
        if channels % self.num_groups:
            raise ValueError(
                f"num_groups: expected a divisor of {channels} channels, got {self.num_groups}."
            )
        if self._input_shape is None:
            self.scale = Parameter(np.ones(channels), dtype=gpflow.default_float())
            self.shift = Parameter(np.zeros(channels), dtype=gpflow.default_float())
        return input_shape

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """Of the inputs' shape."""
        *positions, channels = self.input_shape
        groups = tf.reshape(X, [-1, *positions, self.num_groups, channels // self.num_groups])
        axes = [*range(1, len(positions) + 1), len(positions) + 2]
        mean, variance = tf.nn.moments(groups, axes, keepdims=True)
        standardised = (groups - mean) * tf.math.rsqrt(variance + self.epsilon)
        return tf.reshape(standardised, tf.shape(X)) * self.scale + self.shift


class Residual(NetworkLayer):
    """
    The sum of what layers make of an input, and of the input itself or of what other layers make of it (He et
    al. 2016).

    :param layers: of the branch.
    :param shortcut: of the other branch, none by default; such as a convolution of size 1 where the sizes of
        the images or the number of channels change.
    """

    def __init__(
        self, layers: Sequence[Any], shortcut: Sequence[Any] = (), *, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        for name, branch in (("layers", layers), ("shortcut", shortcut)):
            if not isinstance(branch, Sequence) or not all(
                isinstance(layer, NetworkLayer) for layer in branch
            ):
                raise TypeError(
                    f"{name}: expected a sequence of layers of a network, got {branch!r}."
                )
        self.layers, self.shortcut = list(layers), list(shortcut)

    def _connect(self, input_shape: Shape) -> Shape:
        first, second = (connect(branch, input_shape) for branch in (self.layers, self.shortcut))
        if first != second:
            raise ValueError(
                f"shortcut: expected outputs of shape {list(first)} like the branch's, got"
                f" {list(second)}."
            )
        return first

    def walk(self, X: tf.Tensor) -> Path:
        """See :meth:`NetworkLayer.walk`."""
        branch = yield from walk(self.layers, X)
        shortcut = yield from walk(self.shortcut, X)
        return branch + shortcut

    @property
    def random_layers(self) -> list[Any]:
        """Those of the branch, then those of the shortcut."""
        return random_layers(self.layers + self.shortcut)
