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
import tensorflow_probability as tfp
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

from gpflow_deep.numerics.draws import digital_shift, even_uniforms

from .independent import latent_kernels
from .methods import has_methods_of
from .spectral_mixture import SpectralMixture
from .stacked_stationary import StackedStationary

__all__ = ["PriorFunctions"]

Draw = Callable[[Any, int, "_Numbers"], tuple[tf.Tensor, tf.Tensor]]


class PriorFunctions(Module):
    """
    S draws of T independent GPs with zero mean, f(x) = sum_i a_i cos(w_i^T x) + b_i sin(w_i^T x).

    Every draw has frequencies of its own, so that the covariance over many draws is the kernel's however few
    waves there are; more of them bring each draw nearer to a Gaussian one. At every input its variance is the
    kernel's. A draw's frequencies are spread evenly over their density: of random ones few are high, and the
    draws that have many such are much rougher than the others.

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
        first, *others = [
            list(_spectrum(own, _Numbers(own, input_dim, num_samples, num_features, seed, index)))
            for index, own in enumerate(_of_each_gp(kernel))
        ]
        # As many waves for all GPs, those that some lack of no height.
        count = max(map(len, (first, *others)))
        dtype = gpflow.default_float()
        none = tf.zeros([num_samples, num_features, input_dim], dtype)
        nothing = tf.zeros([], dtype), none
        terms = [own + [nothing] * (count - len(own)) for own in (first, *others)]
        self.frequencies = tf.stack(
            [tf.concat([frequencies for _, frequencies in own], axis=1) for own in terms], axis=1
        )  # [S, K, F, D]
        variances = tf.stack([tf.stack([variance for variance, _ in own]) for own in terms])
        # Of each wave of each term, [K, F].
        heights = tf.repeat(tf.sqrt(variances / num_features), num_features, axis=1)
        normals = tf.random.stateless_normal(
            [num_samples, num_latent_gps, 2, heights.shape[1]],
            tf.random.experimental.stateless_fold_in(seed, 0),
            dtype=heights.dtype,
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


class _Numbers:
    """
    The random numbers of the frequencies of one GP's kernel: of each draw an even sequence shifted at random,
    of which every part of the kernel has coordinates of its own.
    """

    def __init__(
        self,
        kernel: Kernel,
        input_dim: int,
        num_samples: int,
        num_features: int,
        seed: tf.Tensor,
        index: int,
    ) -> None:
        self.input_dim, self.shape = input_dim, [num_samples, num_features]
        dims = max(1, self._how_many(kernel))
        seed = tf.random.experimental.stateless_fold_in(seed, 1 + index)
        shift = digital_shift(dims, seed, [num_samples])
        self._left = even_uniforms(num_features, dims, shift)[:, :num_features]

    def _how_many(self, kernel: Kernel) -> int:
        if has_methods_of(kernel, Sum) or has_methods_of(kernel, Product):
            return sum(map(self._how_many, kernel.kernels))
        return len(self.active(kernel)) + 1

    def active(self, kernel: Kernel) -> np.ndarray:
        """Rows of the unit matrix: [active dims, D]."""
        return np.eye(self.input_dim)[kernel.active_dims]

    def uniforms(self, dims: int = 1) -> tf.Tensor:
        """Numbers between 0 and 1 that no other call has, [S, F, dims]."""
        numbers, self._left = self._left[..., :dims], self._left[..., dims:]
        return numbers

    def normals(self, dims: int) -> tf.Tensor:
        """[S, F, dims]."""
        return _as_default(tf.math.ndtri(self.uniforms(dims)))

    def gammas(self, alpha: TensorType) -> tf.Tensor:
        """One for each frequency, [S, F, 1], of mean ``alpha``."""
        return _as_default(tfp.math.igammainv(tf.cast(alpha, tf.float64), self.uniforms()))


def _as_default(numbers: tf.Tensor) -> tf.Tensor:
    return tf.cast(numbers, gpflow.default_float())


def _spectrum(kernel: Kernel, numbers: _Numbers) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """The terms of a kernel: the variance of each, and frequencies [S, F, D] drawn from its density."""
    if has_methods_of(kernel, Sum):
        for part in kernel.kernels:
            yield from _spectrum(part, numbers)
        return
    if has_methods_of(kernel, Product):
        # Of a product of kernels the density is the convolution: frequencies add up.
        first, *others = kernel.kernels
        terms = list(_spectrum(first, numbers))
        for other in others:
            factors = list(_spectrum(other, numbers))
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
    active = numbers.active(kernel)
    variance, frequencies = draw(kernel, len(active), numbers)
    yield variance, tf.matmul(frequencies, tf.constant(active, frequencies.dtype))


def _scaled(kernel: Stationary, frequencies: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.convert_to_tensor(kernel.variance), frequencies / kernel.lengthscales


def _squared_exponential(
    kernel: Kernel, dims: int, numbers: _Numbers
) -> tuple[tf.Tensor, tf.Tensor]:
    return _scaled(kernel, numbers.normals(dims))


def _matern(nu: float, scale: float = 1.0) -> Draw:
    """Student's t with 2 nu degrees of freedom, in D dimensions."""

    def draw(kernel: Kernel, dims: int, numbers: _Numbers) -> tuple[tf.Tensor, tf.Tensor]:
        normals = numbers.normals(dims)
        return _scaled(kernel, scale * normals * tf.sqrt(nu / numbers.gammas(nu)))

    return draw


def _rational_quadratic(
    kernel: RationalQuadratic, dims: int, numbers: _Numbers
) -> tuple[tf.Tensor, tf.Tensor]:
    """A mixture of squared exponentials whose precisions have a gamma distribution."""
    normals, alpha = numbers.normals(dims), tf.convert_to_tensor(kernel.alpha)
    return _scaled(kernel, normals * tf.sqrt(numbers.gammas(alpha) / alpha))


def _cosine(kernel: Cosine, dims: int, numbers: _Numbers) -> tuple[tf.Tensor, tf.Tensor]:
    return _scaled(kernel, _as_default(tf.fill([*numbers.shape, dims], 2.0 * math.pi)))


def _constant(kernel: Constant, dims: int, numbers: _Numbers) -> tuple[tf.Tensor, tf.Tensor]:
    zeros = tf.zeros([*numbers.shape, dims], gpflow.default_float())
    return tf.convert_to_tensor(kernel.variance), zeros


def _spectral_mixture(
    kernel: SpectralMixture, dims: int, numbers: _Numbers
) -> tuple[tf.Tensor, tf.Tensor]:
    shares = tf.cumsum(tf.cast(kernel.weights, tf.float64))
    places = tf.reshape(numbers.uniforms() * shares[-1], [-1])
    component = tf.reshape(tf.searchsorted(shares[:-1], places, side="right"), numbers.shape)
    centres, widths = (
        tf.gather(tf.convert_to_tensor(x), component)
        for x in (kernel.frequencies, kernel.bandwidths)
    )
    frequencies = 2.0 * math.pi * (centres + widths * numbers.normals(dims))
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
