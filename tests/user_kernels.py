"""Kernels as GPflow's users write them: subclasses with methods of their own, and for one matrix only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.kernels import (
    IsotropicStationary,
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Product,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
    Sum,
    White,
)

import gpflow_deep as gd

__all__ = ["MULTI_OUTPUT", "SINGLE_OUTPUT", "OneMatrix"]


class _OwnK(SquaredExponential):
    """Of warped inputs."""

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return super().K(tf.tanh(X), None if X2 is None else tf.tanh(X2))


class _OwnKr2(Matern52):
    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return 2.0 * super().K_r2(r2)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return 2.0 * super().K_diag(X)


class _OwnKr(IsotropicStationary):
    """The documented way to a stationary kernel: the profile, and nothing else."""

    def K_r(self, r: tf.Tensor) -> tf.Tensor:
        return self.variance * tf.exp(-r) * (1.0 + r)


class _OwnScale(SquaredExponential):
    def scale(self, X: tf.Tensor | None) -> tf.Tensor | None:
        return None if X is None else tf.tanh(super().scale(X))


class _OwnSlice(SquaredExponential):
    def slice(
        self, X: tf.Tensor, X2: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        return X[..., :1], None if X2 is None else X2[..., :1]


class _OwnDistance(Matern32):
    """City blocks."""

    def scaled_squared_euclid_dist(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        differences = gpflow.utilities.ops.difference_matrix(self.scale(X), self.scale(X2))
        return tf.square(tf.reduce_sum(tf.abs(differences), axis=-1))


class _OwnCall(SquaredExponential):
    def __call__(self, X: tf.Tensor, X2: tf.Tensor | None = None, **options: Any) -> tf.Tensor:
        return 0.5 * super().__call__(X, X2, **options)


class _OwnLinear(Linear):
    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return super().K(X, X2) + 1.0

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return super().K_diag(X) + 1.0


class _OwnWhite(White):
    """Noise that grows with the first input."""

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return super().K(X) * tf.exp(X[..., :1]) if X2 is None else super().K(X, X2)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return super().K_diag(X) * tf.exp(X[..., 0])


class _Mean(Sum):
    @property
    def _reduce(self) -> Callable[[Sequence[tf.Tensor]], tf.Tensor]:
        return lambda parts: tf.add_n(parts) / len(parts)


class _OwnProduct(Product):
    def __call__(self, X: tf.Tensor, X2: tf.Tensor | None = None, **options: Any) -> tf.Tensor:
        return 3.0 * super().__call__(X, X2, **options)


class OneMatrix(Kernel):
    """The covariances of another kernel, for inputs [N, D] only."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        assert len(X.shape) == 2 and (X2 is None or len(X2.shape) == 2)
        return self.kernel(X, X2)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        assert len(X.shape) == 2
        return self.kernel(X, full_cov=False)


class _Transposed(Kernel):
    """Polynomial, with a product that is of matrices only."""

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return (1.0 + X @ tf.transpose(X if X2 is None else X2)) ** 2

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return (1.0 + tf.reduce_sum(tf.square(X), axis=1)) ** 2


class _FixedAxes(SquaredExponential):
    """Of a variance that grows with the inputs' norms, which for a batch are silently other ones."""

    def _norms(self, X: tf.Tensor) -> tf.Tensor:
        return 1.0 + tf.norm(X, axis=1)

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        right = self._norms(X if X2 is None else X2)
        return super().K(X, X2) * self._norms(X)[..., :, None] * right[..., None, :]

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return super().K_diag(X) * tf.square(self._norms(X))


def _own_method_of_the_instance() -> Kernel:
    kernel = SquaredExponential(0.8, 0.9)
    kernel.K = lambda X, X2=None: SquaredExponential.K(  # type: ignore[method-assign]
        kernel, tf.square(X), None if X2 is None else tf.square(X2)
    )
    return kernel


SINGLE_OUTPUT: dict[str, Callable[[], Kernel]] = {
    "own K": lambda: _OwnK(1.3, [0.7, 1.2]),
    "own K_r2": lambda: _OwnKr2(1.3, 0.7),
    "own K_r": lambda: _OwnKr(0.8, [0.7, 1.2]),
    "own scale": lambda: _OwnScale(1.3, 0.7),
    "own slice": lambda: _OwnSlice(1.3, 0.7),
    "own distance": lambda: _OwnDistance(1.3, 0.7),
    "own call": lambda: _OwnCall(1.3, 0.7),
    "own white": lambda: SquaredExponential() + _OwnWhite(0.2),
    "own linear": lambda: SquaredExponential() + _OwnLinear(0.5),
    "own sum": lambda: _Mean([SquaredExponential(), Matern32(0.7)]),
    "own product": lambda: _OwnProduct([SquaredExponential(), Matern32(0.7)]),
    "own K in a sum": lambda: _OwnK(1.3, 0.7) + White(0.1),
    "own K in a product": lambda: _OwnK(1.3, 0.7) * Matern32(active_dims=[1]),
    "own K of the instance": _own_method_of_the_instance,
    "one matrix": lambda: OneMatrix(Matern52()),
    "one matrix, transposed": lambda: _Transposed(),
    "one matrix, fixed axes": lambda: _FixedAxes(),
    "one matrix in a sum": lambda: OneMatrix(Matern52()) + SquaredExponential(),
    "no methods of its own": lambda: type("Mine", (SquaredExponential,), {})(1.3, 0.7),
}
"""Kernels of inputs [N, 2]."""


class _OwnShared(SharedIndependent):
    """Whose second GP has half the scale."""

    def K(
        self, X: tf.Tensor, X2: tf.Tensor | None = None, full_output_cov: bool = True
    ) -> tf.Tensor:
        assert not full_output_cov
        K = self.kernel(X, X2)
        return tf.stack([K, 0.25 * K])

    def K_diag(self, X: tf.Tensor, full_output_cov: bool = True) -> tf.Tensor:
        assert not full_output_cov
        variance = self.kernel(X, full_cov=False)
        return tf.stack([variance, 0.25 * variance], axis=-1)


class _OwnSeparate(SeparateIndependent):
    """Whose GPs share a warping."""

    def K(
        self, X: tf.Tensor, X2: tf.Tensor | None = None, full_output_cov: bool = True
    ) -> tf.Tensor:
        return super().K(tf.tanh(X), None if X2 is None else tf.tanh(X2), full_output_cov)


def _scaled(factor: float) -> Kernel:
    return SquaredExponential(1.3, 0.7) * gpflow.kernels.Constant(factor)


MULTI_OUTPUT: dict[str, tuple[Callable[[], Kernel], Callable[[], list[Kernel]]]] = {
    "own shared": (
        lambda: _OwnShared(SquaredExponential(1.3, 0.7), 2),
        lambda: [_scaled(1.0), _scaled(0.25)],
    ),
    "own separate": (
        lambda: _OwnSeparate([SquaredExponential(1.3, 0.7), SquaredExponential(0.5)]),
        lambda: [_OwnK(1.3, 0.7), _OwnK(0.5)],
    ),
    "own K in separate": (
        lambda: SeparateIndependent([_OwnK(1.3, 0.7), OneMatrix(Matern52())]),
        lambda: [_OwnK(1.3, 0.7), Matern52()],
    ),
    "own K in shared": (
        lambda: SharedIndependent(_OwnK(1.3, 0.7), 2),
        lambda: [_OwnK(1.3, 0.7), _OwnK(1.3, 0.7)],
    ),
    "active dims in separate": (
        lambda: SeparateIndependent(
            [
                Linear(active_dims=[0]) + SquaredExponential(),
                SquaredExponential(lengthscales=[0.7], active_dims=[1]),
            ]
        ),
        lambda: [
            Linear(active_dims=[0]) + SquaredExponential(),
            SquaredExponential(lengthscales=[0.7], active_dims=[1]),
        ],
    ),
    "stacked, own K_r2": (
        lambda: gd.kernels.StackedStationary(2, lambda: _OwnKr(), lengthscales=[0.7, 1.2]),
        lambda: [_OwnKr(lengthscales=0.7), _OwnKr(lengthscales=1.2)],
    ),
}
"""Kernels of two GPs, and the kernel of each."""
