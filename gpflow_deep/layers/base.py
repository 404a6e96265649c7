"""What the layers of all families share: T independent GPs with one mean function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.base import Module, Parameter, TensorType
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.mean_functions import MeanFunction, Zero

from ..kernels.independent import check_kernel
from ..numerics.factorisations import cholesky
from ..validation import check_positive_integer

__all__ = ["Layer"]


class Layer(Module, ABC):
    """
    T independent GPs over the same inputs: kernel and mean function.

    With ``LinearCoregionalization`` the layer's outputs are P mixtures of its GPs, ``mixing`` times them plus
    the mean function. Everything else here, as in posteriors, is about the GPs: who makes outputs of them
    mixes.

    >>> layer = gd.layers.GPLayer(gpflow.kernels.Matern52(), X[::4], num_latent_gps=2)
    >>> isinstance(layer, gd.layers.Layer)
    True
    >>> layer.prior_mean(X).shape
    TensorShape([20, 2])

    :param kernel: any GPflow kernel of independent GPs, or ``LinearCoregionalization``.
    :param num_latent_gps: number of GPs, T.
    :param mean_function: from [N, D] to [N, T], or [N, P] where the layer mixes; zero by default.
    """

    num_inducing: int
    """Inducing points of each of the layer's GPs, M."""

    _is_in_use = False
    """Whether a model has the layer: what is assigned to its parts is then checked as by :meth:`replace`."""

    _replaceable: tuple[str, ...] = ("kernel", "mean_function")

    def __init__(
        self,
        kernel: Kernel,
        num_latent_gps: int,
        mean_function: MeanFunction | None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.num_latent_gps = check_positive_integer(num_latent_gps, "num_latent_gps")
        self.kernel = check_kernel(kernel, self.num_latent_gps)
        self.mean_function = Zero(self.output_dim) if mean_function is None else mean_function

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_in_use and name in self._replaceable:
            self.replace(name, value)
        else:
            super().__setattr__(name, value)

    def replace(self, name: str, value: Any) -> None:
        """
        Put another part in the place of the layer's own, as an assignment does of a layer that a model has.

        :param name: "kernel" or "mean_function"; of :class:`~gpflow_deep.layers.GPLayer` also
            "inducing_variable" and "whiten".
        :param value: as for the constructor.
        :raises AttributeError: where the layer has no such part.
        :raises TypeError: where the constructor would raise it.
        :raises ValueError: likewise. The layer then has what it had before.
        """
        before = getattr(self, name)
        super().__setattr__(name, self._as_part(name, value))
        try:
            self._check_parts()
        except Exception:
            super().__setattr__(name, before)
            raise

    def _as_part(self, name: str, value: Any) -> Any:
        if name == "kernel":
            return check_kernel(value, self.num_latent_gps)
        if name == "mean_function" and value is None:
            return Zero(self.output_dim)
        return value

    def _check_parts(self) -> None:
        """Whether the parts fit each other, as far as it is known without data."""

    @property
    def mixing(self) -> Parameter | None:
        """W [P, T] that makes outputs of the GPs (``LinearCoregionalization``); ``None`` for no mixing."""
        mixes = isinstance(self.kernel, LinearCoregionalization)
        return self.kernel.W if mixes else None

    @property
    def output_dim(self) -> int:
        """Number of outputs: P where the layer mixes its GPs, else T."""
        return self.num_latent_gps if self.mixing is None else int(self.mixing.shape[0])

    @property
    @abstractmethod
    def input_dim(self) -> int | None:
        """Dimension of the inputs; ``None`` where it is not known."""

    @abstractmethod
    def sample_prior(self, X: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """
        Draws [S, N, T] of the layer's GPs from their prior, jointly over the points.

        :param X: inputs [S, N, D].
        :param noise: standard normal draws [S, N, T].
        """

    def _factorise(self, matrix: tf.Tensor, what: str) -> tf.Tensor:
        """Cholesky factor of a covariance of this layer; an error shows the kernel's parameters."""
        parameters = gpflow.utilities.parameter_dict(self.kernel)
        shown = {f"kernel{path}": value for path, value in parameters.items()}
        return cholesky(matrix, f"{what}, {type(self.kernel).__name__})", shown)

    def _check_mean_function(self, X: tf.Tensor) -> None:
        """Try the mean function on inputs, so that it need not fail in the midst of training."""
        if not callable(self.mean_function):
            raise TypeError(
                f"mean_function: expected a GPflow mean function, got {self.mean_function!r}."
            )
        try:
            shape = self.mean_function(X).shape
        except Exception as error:
            raise ValueError(
                f"mean_function: {type(self.mean_function).__name__} does not fit inputs of dimension"
                f" {X.shape[-1]}: {error}"
            ) from error
        if shape.rank not in (None, X.shape.rank):
            raise ValueError(
                f"mean_function: expected values [N, T] at inputs [N, D], got {shape} at {X.shape}."
            )
        columns = shape[-1]
        if columns not in (None, 1, self.output_dim):
            count = "num_latent_gps" if self.mixing is None else "rows of the kernel's W"
            raise ValueError(
                f"mean_function: expected {self.output_dim} columns ({count}) or one, got {columns}."
            )

    def prior_mean(self, X: TensorType) -> tf.Tensor:
        """
        The mean function, broadcast to all outputs where it returns one column: [..., T], or [..., P] where
        the layer mixes its GPs.

        :param X: inputs [..., D].
        """
        X, P = tf.convert_to_tensor(X), self.output_dim
        columns = tf.shape(X)[-1] if X.shape[-1] is None else X.shape[-1]
        # Not every mean function takes more than a matrix: GPflow's own SwitchedMeanFunction does not.
        rows = tf.reshape(X, [-1, columns])
        mean = tf.broadcast_to(self.mean_function(rows), [tf.shape(rows)[0], P])
        return tf.reshape(mean, tf.concat([tf.shape(X)[:-1], [P]], axis=0))

    def latent_mean(self, X: TensorType) -> tf.Tensor:
        """
        Prior mean of the GPs [..., T], in the dtype of ``X``: the mean function, or zero where the layer
        mixes its GPs, since it is added to the mixtures.

        :param X: inputs [..., D].
        """
        if self.mixing is None:
            return tf.cast(self.prior_mean(tf.cast(X, gpflow.default_float())), X.dtype)
        shape = tf.concat([tf.shape(X)[:-1], [self.num_latent_gps]], axis=0)
        return tf.zeros(shape, X.dtype)
