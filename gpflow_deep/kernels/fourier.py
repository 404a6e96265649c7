"""
Functions drawn from the priors of stationary kernels, as sums of waves (Rahimi & Recht 2007).

A stationary kernel is the Fourier transform of its spectral density: the average of cos(w^T (x - z)) over
frequencies w that it draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Module, TensorType
from gpflow.kernels import (
    Constant,
    Cosine,
    Exponential,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
    Sum,
)

from .independent import latent_kernels
from .methods import has_methods_of
from .spectral_mixture import SpectralMixture
from .stacked_stationary import StackedStationary

__all__ = ["PriorFunctions"]

Seeds = Iterator[tf.Tensor]
Draw = Callable[[Any, Sequence[int], Seeds], tuple[tf.Tensor, tf.Tensor]]


class PriorFunctions(Module):
    """
    S draws of T independent GPs with zero mean, f(x) = sum_i a_i cos(w_i^T x) + b_i sin(w_i^T x).

    Every draw has frequencies of its own, so that the covariance over many draws is the kernel's however few
    waves there are; more of them bring each draw nearer to a Gaussian one. At every input its variance is the
    kernel's.

    :param kernel: a stationary kernel of GPflow with a known spectral density, ``SpectralMixture``, or sums
        and products of them; of independent GPs.
    :param num_latent_gps: T.
    :param input_dim: D.
    :param num_samples: S.
    :param num_features: frequencies of each term of a sum.
    :param seed: two integers, of which the draws are a pure function.
    :raises NotImplementedError: for any other kernel.
    """

    def __init__(
        self,
        kernel: Kernel,
        num_latent_gps: int,
        input_dim: int,
        num_samples: int,
        num_features: int,
        seed: tf.Tensor,
    ) -> None:
        super().__init__()
        shape = [num_samples, num_features, input_dim]
        seeds = (tf.random.experimental.stateless_fold_in(seed, i) for i in range(2**31 - 1))
        first, *others = [list(_spectrum(own, shape, seeds)) for own in _of_each_gp(kernel)]
        # As many waves for all GPs, those that some lack of no height.
        count = max(map(len, (first, *others)))
        nothing = tf.zeros([], gpflow.default_float()), tf.zeros(shape, gpflow.default_float())
        terms = [own + [nothing] * (count - len(own)) for own in (first, *others)]
        self.frequencies = tf.stack(
            [tf.concat([frequencies for _, frequencies in own], axis=1) for own in terms], axis=1
        )  # [S, K, F, D]
        variances = tf.stack([tf.stack([variance for variance, _ in own]) for own in terms])
        # Of each wave of each term, [K, F].
        heights = tf.repeat(tf.sqrt(variances / num_features), num_features, axis=1)
        normals = tf.random.stateless_normal(
            [num_samples, num_latent_gps, 2, heights.shape[1]], next(seeds), dtype=heights.dtype
        )
        weights = heights[:, None, :] * normals
        self.weights = tf.reshape(weights, [num_samples, num_latent_gps, -1])  # [S, T, 2 F]

    @property
    def width(self) -> int:
        """How many waves it evaluates at a point."""
        _, K, F, _ = self.frequencies.shape
        return 2 * K * F

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """
        The functions' values.

        :param X: inputs [S or 1, N, D].
        :return: [S, N, T].
        """
        S, K, F, D = self.frequencies.shape
        X = tf.broadcast_to(X, [S, tf.shape(X)[1], D])
        phases = tf.matmul(X, tf.reshape(self.frequencies, [S, K * F, D]), transpose_b=True)
        if K > 1:
            phases = tf.reshape(phases, [S, tf.shape(X)[1], K, F])
        waves = tf.concat([tf.cos(phases), tf.sin(phases)], axis=-1)  # [S, N, (K), 2 F]
        if K > 1:
            return tf.einsum("sntf,stf->snt", waves, self.weights)
        return tf.matmul(waves, self.weights, transpose_b=True)


def _of_each_gp(kernel: Kernel) -> Sequence[Kernel]:
    if has_methods_of(kernel, StackedStationary):
        return kernel.latent_kernels
    return latent_kernels(kernel) or [kernel]


def _spectrum(
    kernel: Kernel, shape: Sequence[int], seeds: Seeds
) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """The terms of a kernel: the variance of each, and frequencies [S, F, D] drawn from its density."""
    if has_methods_of(kernel, Sum):
        for part in kernel.kernels:
            yield from _spectrum(part, shape, seeds)
        return
    if has_methods_of(kernel, Product):
        # Of a product of kernels the density is the convolution: frequencies add up.
        first, *others = kernel.kernels
        terms = list(_spectrum(first, shape, seeds))
        for other in others:
            factors = list(_spectrum(other, shape, seeds))
            terms = [(v * w, f + g) for v, f in terms for w, g in factors]
        yield from terms
        return
    draw = next((draw for kind, draw in _DENSITIES.items() if has_methods_of(kernel, kind)), None)
    if draw is None:
        known = ", ".join(kind.__name__ for kind in _DENSITIES)
        raise NotImplementedError(
            f"kernel: expected one whose spectral density is known ({known}, and sums and products of them)"
            f" for draws of whole functions, got {type(kernel).__name__}."
        )
    active = np.eye(shape[-1])[kernel.active_dims]  # [active dims, D]
    variance, frequencies = draw(kernel, [*shape[:-1], len(active)], seeds)
    yield variance, tf.matmul(frequencies, tf.constant(active, frequencies.dtype))


def _normals(shape: Sequence[int], seeds: Seeds) -> tf.Tensor:
    return tf.random.stateless_normal(shape, next(seeds), dtype=gpflow.default_float())


def _gammas(shape: Sequence[int], seeds: Seeds, alpha: TensorType) -> tf.Tensor:
    """One for each frequency, [S, F, 1], of mean ``alpha``."""
    dtype = gpflow.default_float()
    return tf.random.stateless_gamma([*shape[:2], 1], next(seeds), alpha, dtype=dtype)


def _scaled(kernel: Stationary, frequencies: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.convert_to_tensor(kernel.variance), frequencies / kernel.lengthscales


def _squared_exponential(
    kernel: Kernel, shape: Sequence[int], seeds: Seeds
) -> tuple[tf.Tensor, tf.Tensor]:
    return _scaled(kernel, _normals(shape, seeds))


def _matern(nu: float, scale: float = 1.0) -> Draw:
    """Student's t with 2 nu degrees of freedom, in D dimensions."""

    def draw(kernel: Kernel, shape: Sequence[int], seeds: Seeds) -> tuple[tf.Tensor, tf.Tensor]:
        normals = _normals(shape, seeds)
        return _scaled(kernel, scale * normals * tf.sqrt(nu / _gammas(shape, seeds, nu)))

    return draw


def _rational_quadratic(
    kernel: RationalQuadratic, shape: Sequence[int], seeds: Seeds
) -> tuple[tf.Tensor, tf.Tensor]:
    """A mixture of squared exponentials whose precisions have a gamma distribution."""
    normals, alpha = _normals(shape, seeds), tf.convert_to_tensor(kernel.alpha)
    return _scaled(kernel, normals * tf.sqrt(_gammas(shape, seeds, alpha) / alpha))


def _cosine(kernel: Cosine, shape: Sequence[int], seeds: Seeds) -> tuple[tf.Tensor, tf.Tensor]:
    return _scaled(kernel, tf.fill(shape, tf.cast(2.0 * math.pi, gpflow.default_float())))


def _constant(kernel: Constant, shape: Sequence[int], seeds: Seeds) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.convert_to_tensor(kernel.variance), tf.zeros(shape, gpflow.default_float())


def _spectral_mixture(
    kernel: SpectralMixture, shape: Sequence[int], seeds: Seeds
) -> tuple[tf.Tensor, tf.Tensor]:
    logits = tf.math.log(tf.convert_to_tensor(kernel.weights))[None]
    component = tf.random.stateless_categorical(logits, math.prod(shape[:2]), next(seeds))
    component = tf.reshape(component, shape[:2])
    centres, widths = (
        tf.gather(tf.convert_to_tensor(x), component)
        for x in (kernel.frequencies, kernel.bandwidths)
    )
    frequencies = 2.0 * math.pi * (centres + widths * _normals(shape, seeds))
    return tf.reduce_sum(kernel.weights), frequencies


# Of each kernel: its variance, and how frequencies [S, F, active dims] are drawn from its spectral density.
_DENSITIES: dict[type[Kernel], Draw] = {
    SquaredExponential: _squared_exponential,
    Matern12: _matern(0.5),
    Matern32: _matern(1.5),
    Matern52: _matern(2.5),
    Exponential: _matern(0.5, scale=0.5),  # GPflow's, of exp(-r / 2)
    RationalQuadratic: _rational_quadratic,
    Cosine: _cosine,
    Constant: _constant,
    SpectralMixture: _spectral_mixture,
}
