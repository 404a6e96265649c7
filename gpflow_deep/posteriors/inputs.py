"""What training and predictions take: inputs and observations, checked, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import InputData, RegressionData, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import Layer
from ..validation import as_real_tensor, check_finite, check_pair, check_targets, images_as_rows

__all__ = ["TakesInputs", "as_rows"]


class TakesInputs:
    """Of a model with layers and a likelihood, or of its posterior."""

    layers: Sequence[Layer]
    likelihood: Likelihood

    #: GPflow's default float when it was made, which its parameters are in, where that is known.
    _made_in: Any = None

    @property
    def _input_dim(self) -> int | None:
        """Columns of the inputs, where they are known."""
        return self.layers[0].input_dim

    @property
    def _output_dim(self) -> int:
        return self.layers[-1].output_dim

    def _as_inputs(self, X: InputData, name: str = "Xnew") -> tf.Tensor:
        """Inputs [..., N, D] in the default float, whose D is the first layer's."""
        if self._made_in not in (None, gpflow.default_float()):
            made, present = (np.dtype(x).name for x in (self._made_in, gpflow.default_float()))
            raise ValueError(
                f"gpflow.default_float: expected {made}, in which this {type(self).__name__} was made, got"
                f" {present}; call gpflow.config.set_default_float(np.{made})."
            )
        tensor = tf.cast(as_real_tensor(X, name), gpflow.default_float())
        if tensor.shape.rank == 0:
            raise ValueError(f"{name}: expected inputs [..., N, D], got one number.")
        input_dim = self._input_dim
        if input_dim is None or tensor.shape.rank is None:
            return tensor
        if tensor.shape[-1] is None:  # and only then: TensorFlow has no forward derivative of this
            return tf.ensure_shape(tensor, tensor.shape[:-1].concatenate(input_dim))
        if tensor.shape[-1] != input_dim:
            raise ValueError(
                f"{name}: expected [..., {input_dim}] like the first layer's inducing inputs, got"
                f" {tensor.shape}.{images_as_rows(tensor.shape, input_dim)}"
            )
        return tensor

    def _as_joint_inputs(self, Xnew: InputData) -> tf.Tensor:
        """Likewise for what is said of all points together: one without a value would spoil the others."""
        return check_finite(self._as_inputs(Xnew), "Xnew")

    def _as_matrix(self, Xnew: InputData, name: str = "Xnew") -> tf.Tensor:
        X = self._as_inputs(Xnew, name)
        if X.shape.rank is None:
            return tf.ensure_shape(X, [None, self._input_dim])
        if X.shape.rank != 2:
            raise ValueError(f"{name}: expected a matrix [N, D], got shape {X.shape}.")
        return X

    def _check_observations(self, data: RegressionData) -> tuple[InputData, tf.Tensor]:
        """Inputs as they are, of any shape, and targets in the type that the likelihood takes."""
        X, Y = check_pair(data)
        Y = as_real_tensor(Y, "data[1]")
        if Y.shape.rank is not None and Y.shape.rank < 2:
            raise ValueError(
                f"data[1]: expected [..., N, P], got shape {Y.shape}.{_advice_on(Y.shape)}"
            )
        return X, check_targets(Y, self.likelihood, self._output_dim, "data[1]")

    def _check_data(self, data: RegressionData) -> RegressionData:
        """
        Inputs and targets in the types that the model takes, with shapes that fit it.

        :raises ValueError: where they do not, or a value is NaN or infinite, or no class.
        :raises tf.errors.InvalidArgumentError: for such values of tensors that are known only when a
            compiled function runs (compiled by XLA it has no such check).
        """
        X, Y = (as_real_tensor(x, f"data[{i}]") for i, x in enumerate(check_pair(data)))
        X, Y = (x if x.shape.rank is not None else tf.ensure_shape(x, [None, None]) for x in (X, Y))
        for i, tensor in enumerate((X, Y)):
            if tensor.shape.rank != 2 or 0 in tensor.shape:
                raise ValueError(
                    f"data[{i}]: expected a non-empty matrix, got shape"
                    f" {tensor.shape}.{_advice_on(tensor.shape)}"
                )
        if X.shape[0] is not None and Y.shape[0] is not None and X.shape[0] != Y.shape[0]:
            raise ValueError(
                f"data: expected as many inputs as targets, got {X.shape[0]} and {Y.shape[0]}."
            )
        Y = check_targets(Y, self.likelihood, self._output_dim, "data[1]")
        return self._as_inputs(check_finite(X, "data[0]"), "data[0]"), Y

    def _over_batches(
        self,
        function: Callable[[tf.Tensor], tuple[tf.Tensor, ...]],
        X: tf.Tensor,
        shapes: Sequence[Sequence[Any]],
    ) -> tuple[tf.Tensor, ...]:
        """
        A function of inputs [N, D] for every batch of ``X`` [batch..., N, D].

        :param shapes: of its results, with "N" and "P" for the numbers of points and of outputs.
        """
        shape = tf.shape(X)
        batch, N, D = shape[:-2], shape[-2], self._input_dim
        flat = tf.reshape(X, [-1, N, shape[-1] if D is None else D])
        results = tf.map_fn(function, flat, fn_output_signature=(X.dtype,) * len(shapes))
        sizes: dict[Any, TensorType] = {"N": N, "P": self._output_dim}
        return tuple(
            tf.reshape(x, tf.concat([batch, [sizes.get(k, k) for k in tail]], axis=0))
            for x, tail in zip(results, shapes)
        )


def _advice_on(shape: tf.TensorShape) -> str:
    """The end of a message on an array that is no matrix."""
    return " One column is x[:, None]." if shape.rank == 1 else images_as_rows(shape)


def as_rows(x: tf.Tensor, columns: int | None = None) -> tf.Tensor:
    """A matrix of all rows, also of a tensor whose rank is not known by now."""
    if columns is None:
        columns = x.shape[-1] if x.shape.rank else None
    return tf.reshape(x, [-1, tf.shape(x)[-1] if columns is None else columns])
