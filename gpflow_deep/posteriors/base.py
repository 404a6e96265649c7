r"""
What every Gaussian posterior over the inducing outputs of all layers has in common.

Notation (Lindinger et al. 2020): layers l = 1..L with T_l GPs of M_l inducing points each; v stacks the
inducing outputs layer by layer, within a layer GP by GP, within a GP point by point, and
:math:`q(v) = N(m, L L^T)` with a lower-triangular L whose M x M blocks are zero outside a pattern.

With ``a`` a layer's projection of its input on its inducing variables, Theorem 1 says that for one point
all layers' function values are jointly Gaussian given the inputs of each layer,

.. math::
    \tilde S_{(l,t),(k,u)} = \delta_{(l,t),(k,u)} k_{nn}
    + a_l^T (L L^T - K)_{(l,t),(k,u)} a_k

with K the block-diagonal prior covariance of v (the identity where a layer is whitened), so that the layers
can be sampled in turn. A posterior forms the blocks of :math:`L L^T - K` that its pattern needs once a step;
a :class:`Recursion` carries one batch of points through the layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Module, Parameter, TensorType

from ..layers import GPLayer, Projection
from ..numerics.linalg import cast_all
from ..validation import check_memory, check_positive_number, check_sequence_of
from .free_numbers import FreeNumbers, Positions

__all__ = ["Conditional", "InducingPosterior", "Moments", "Recursion"]

PriorFactors = Sequence[tf.Tensor | None] | None
Read = Callable[[Parameter], Any]
GP = tuple[int, int]
"""Its layer, and its index within it."""

HIDDEN_SCALE = 1e-2
"""
Initial factor of q in hidden layers, which are then nearly deterministic (Salimbeni & Deisenroth 2017).

The papers start from 1e-5. The gradient of log |diag L| is then 1e5 in Adam's first steps, and its running
mean of squares keeps these entries from moving for thousands of steps. Small data sets are then fitted more
tightly: the test score may be better among the data, the bound and the score away from them are worse.
"""


class Conditional(NamedTuple):
    """
    A layer's function values given the draws of the layers below (Eqs. 10 and 11).

    >>> layers = gd.layers.build_layers(X, hidden_dims=(), num_inducing=5)
    >>> q = gd.posteriors.MeanField(layers)
    >>> recursion = q.recursion(q.moments(), jitter=1e-6)
    >>> output = recursion.condition(layers[0].project(tf.constant(X)[None], layers[0].factorise()))
    >>> output.mean.shape, output.covariance.shape
    (TensorShape([1, 20, 1]), TensorShape([1, 20, 1]))
    """

    mean: tf.Tensor  # [S, N, T]
    covariance: tf.Tensor  # [S, N, T, T], or its diagonal [S, N, T] where the rest is zero


class Moments(NamedTuple):
    """All that is needed of q(v) in a step and that no input enters."""

    # As the structure has them: per layer its mean and blocks of L L^T - K, and the stored blocks of L.
    layers: Sequence[Any]
    factor: Any


class Recursion(ABC):
    """
    One pass of a batch of points through the layers: condition on the layers below, sample, go on.

    A pass of one batch through the layers, by hand:

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> q = gd.posteriors.StripesAndArrow(layers)
    >>> recursion = q.recursion(q.moments(), jitter=1e-6)
    >>> hidden = recursion.condition(layers[0].project(tf.constant(X)[None], layers[0].factorise()))
    >>> recursion.sample(tf.zeros([1, 20, 2], tf.float64)).shape
    TensorShape([1, 20, 2])

    :param jitter: J of the small covariance matrices: f = mean + chol(covariance + J I) z.
    """

    def __init__(self, jitter: float) -> None:
        self.jitter = jitter

    @abstractmethod
    def condition(self, projection: Projection) -> Conditional:
        """The next layer's conditional, from its projection of the draws of the layer below."""

    @abstractmethod
    def sample(self, noise: tf.Tensor) -> tf.Tensor:
        """A draw [S, N, T] from the last conditional, made of standard normal ``noise``."""


class InducingPosterior(Module, ABC):
    """
    A Gaussian q(v) over the inducing outputs of all layers, with some structure.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> q = gd.posteriors.StripesAndArrow(layers)
    >>> isinstance(q, gd.posteriors.InducingPosterior)
    True
    >>> mean, scale_tril = q.dense()
    >>> q.assign_dense(np.ones(15), np.eye(15))
    >>> round(float(q.prior_kl()), 6)  # |mean|^2 / 2
    7.5

    :param layers: the layers whose inducing outputs it is over. Only their sizes are kept.
    """

    def __init__(self, layers: Sequence[GPLayer], name: str | None = None) -> None:
        super().__init__(name=name)
        check_sequence_of(layers, GPLayer, "layers")
        self.num_latent_gps = tuple(layer.num_latent_gps for layer in layers)
        self.num_inducing = tuple(layer.num_inducing for layer in layers)

    # What a structure defines.

    @property
    @abstractmethod
    def pattern(self) -> np.ndarray:
        """Which blocks of the factor may differ from zero: [T, T], boolean, lower triangular."""

    @abstractmethod
    def _mean(self, read: Read = tf.convert_to_tensor) -> Any:
        """The mean [T M] in the joint order, each parameter read by ``read``."""

    @abstractmethod
    def _factor(self, read: Read = tf.convert_to_tensor) -> Any:
        """The stored blocks of L, each parameter read once: it is transformed once a step."""

    @abstractmethod
    def _block(self, factor: Any, row: GP, column: GP) -> Any:
        """Of what :meth:`_factor` returned, the block [M, M'] between two GPs that are coupled."""

    @abstractmethod
    def _layer_moments(self, factor: Any) -> list[Any]:
        """
        Per layer a named tuple of its ``mean`` [M, T], the blocks of L L^T with the layers ``below``, and
        with itself, ``own``: [T, M, M], or [T, T, M, M] where the layer's GPs are coupled.
        """

    @abstractmethod
    def _log_determinant(self, factor: Any) -> tf.Tensor:
        """log |L|."""

    @abstractmethod
    def recursion(self, moments: Moments, jitter: float) -> Recursion:
        """
        A pass through the layers.

        :param moments: what :meth:`moments` returned.
        :param jitter: J, which :class:`Recursion` adds to the small covariances.
        """

    @abstractmethod
    def _assign(self, mean: np.ndarray, scale_tril: np.ndarray) -> None:
        """Take over a mean and a factor that :meth:`assign_dense` has checked."""

    @abstractmethod
    def _factor_times(self, factor: Any, noise: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """L e for ``noise`` e, both per layer [S, T_l, M_l]."""

    @abstractmethod
    def output_factor(self, moments: Moments) -> tf.Tensor:
        """
        Factors of the last layer's inducing outputs given the noise of the layers below, v_p = m_p + F_p e:
        [P, M, M], or [P, M, P M] where its GPs are coupled, and e is common to them.

        :param moments: what :meth:`moments` returned.
        """

    @property
    def variational_params(self) -> list[tuple[Parameter, Parameter]]:
        """
        The (q_mu, q_sqrt) pairs that ``gpflow.optimizers.NaturalGradient`` takes: one at a time where
        their sizes differ and GPflow checks shapes, which by default it does in eager mode only.

        :raises NotImplementedError: where the structure is not one that it can update.
        :raises RuntimeError: inside a replica of several: each would be updated by its own gradients.
        """
        raise NotImplementedError(
            "gpflow.optimizers.NaturalGradient updates full covariances only: MeanField and Orthogonal (layer"
            f" by layer) and FullyCoupled have variational_params, {type(self).__name__} has not. Use"
            " gpflow_deep.optimizers.NaturalGradient or Adam."
        )

    # What follows from it.

    def dense(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean [T M] and lower-triangular factor [T M, T M] of q(v): the definition of q."""
        factor, gps, pattern = self._factor(), self._gps(), self.pattern
        sizes, dtype = self.num_inducing, gpflow.default_float()
        rows = [
            [
                self._block(factor, row, column)
                if pattern[i, j]
                else tf.zeros([sizes[row[0]], sizes[column[0]]], dtype)
                for j, column in enumerate(gps)
            ]
            for i, row in enumerate(gps)
        ]
        return self._mean(), tf.concat([tf.concat(row, axis=1) for row in rows], axis=0)

    def free_numbers(self, read: Positions) -> FreeNumbers:
        """Where the entries of m and L are stored, the GPs in the joint order."""
        factor, gps = self._factor(read), self._gps()
        blocks = {
            (int(i), int(j)): np.asarray(self._block(factor, gps[i], gps[j]))
            for i, j in np.argwhere(self.pattern)
        }
        ends = np.cumsum(self._gp_sizes())[:-1]
        means = np.split(np.asarray(self._mean(read)), ends)
        return FreeNumbers(means, blocks, self.num_latent_gps[-1])

    @property
    def num_parameters(self) -> int:
        """The number of free numbers: the mean's, and the stored entries of the factor."""
        sizes = self._gp_sizes()
        stored = sum(sizes[i] * sizes[j] for i, j in np.argwhere(self.pattern) if i != j)
        return int(sum(sizes) + stored + sum(m * (m + 1) // 2 for m in sizes))

    def _check_memory(self) -> None:
        """Before there is an array of them: whether the free numbers fit into memory."""
        sizes = ", ".join(f"{t} x {m}" for t, m in zip(self.num_latent_gps, self.num_inducing))
        what = f"{type(self).__name__} over layers of {sizes} inducing outputs"
        check_memory(self.num_parameters, what, "layers")

    def sample(self, moments: Moments, noise: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """
        Draws of v, per layer [S, T_l, M_l].

        :param moments: what :meth:`moments` returned.
        :param noise: standard normal draws of these shapes, of which they are made.
        """
        products = self._factor_times(moments.factor, noise)
        return [tf.transpose(layer.mean) + e for layer, e in zip(moments.layers, products)]

    def moments(
        self, prior_factors: PriorFactors = None, compute_dtype: str | None = None
    ) -> Moments:
        """
        The means and the covariances less the prior's that predictions and :meth:`prior_kl` take.

        :param prior_factors: per layer the Cholesky factor of the prior covariance of its inducing
            outputs, [M, M] or [T, M, M], or ``None`` for the identity. All ``None`` by default, as for
            whitened layers.
        :param compute_dtype: of the covariances where all layers are whitened; otherwise, and by default,
            they are in the parameters' own.
        """
        factor, priors = self._factor(), self._per_layer(prior_factors)
        # The KL divergence from another prior takes K^-1 S, in which float32 leaves no digits.
        whitened = all(prior is None for prior in priors)
        multiplied = cast_all(factor, compute_dtype) if compute_dtype and whitened else factor
        layers = [
            layer._replace(own=_subtract_prior(layer.own, prior))
            for layer, prior in zip(self._layer_moments(multiplied), priors)
        ]
        return Moments(layers, factor)

    def prior_kl(
        self, prior_factors: PriorFactors = None, moments: Moments | None = None
    ) -> tf.Tensor:
        r"""
        KL divergence from the prior, with S the covariance of q and K the prior's:
        :math:`\tfrac12 (m^T K^{-1} m + tr(K^{-1} (S - K)) + \log|K|) - \log|L|`.

        :param prior_factors: as for :meth:`moments`.
        :param moments: what :meth:`moments` returned for them, where it is at hand.
        """
        moments = moments or self.moments(prior_factors)
        total = -self._log_determinant(moments.factor)
        for layer, factor in zip(moments.layers, self._per_layer(prior_factors)):
            mean, own = tf.transpose(layer.mean)[..., None], diagonal_blocks(layer.own)
            if factor is not None:
                factor = tf.broadcast_to(factor, own.shape)
                total += tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)))
                mean = tf.linalg.triangular_solve(factor, mean)
                own = tf.linalg.cholesky_solve(factor, own)
            trace = tf.reduce_sum(tf.cast(tf.linalg.diag_part(own), total.dtype))
            total += 0.5 * (tf.reduce_sum(tf.square(mean)) + trace)
        return total

    def _per_layer(self, prior_factors: PriorFactors) -> Sequence[tf.Tensor | None]:
        return [None] * len(self.num_latent_gps) if prior_factors is None else prior_factors

    @check_shapes(
        "mean: [size]",
        "scale_tril: [size, size]",
    )
    def assign_dense(self, mean: TensorType, scale_tril: TensorType) -> None:
        """
        Set q(v) = N(mean, scale_tril scale_tril^T).

        :param mean: [T M], in the joint order.
        :param scale_tril: [T M, T M], lower triangular with a positive diagonal, zero outside the
            pattern.
        :raises ValueError: where it is not.
        """
        mean, scale_tril = np.asarray(mean), np.asarray(scale_tril)
        size = sum(self._gp_sizes())
        for name, array in (("mean", mean), ("scale_tril", scale_tril)):
            if not np.isfinite(array).all():
                raise ValueError(f"{name}: expected finite values, got NaN or infinity.")
        if len(mean) != size:
            raise ValueError(f"mean: expected [{size}], got {mean.shape}.")
        if np.triu(scale_tril, 1).any() or (np.diag(scale_tril) <= 0).any():
            raise ValueError(
                "scale_tril: expected a lower-triangular matrix with a positive diagonal."
            )
        if scale_tril[~self._dense_mask()].any():
            raise ValueError(
                f"scale_tril: expected zeros outside the pattern of {type(self).__name__}."
            )
        self._assign(mean, scale_tril)

    def _gps(self) -> list[GP]:
        """The GPs of all layers, in the joint order."""
        return [(l, t) for l, width in enumerate(self.num_latent_gps) for t in range(width)]

    def _gp_sizes(self) -> list[int]:
        """The number of inducing points of each of the T GPs, in the joint order."""
        return [self.num_inducing[layer] for layer, _ in self._gps()]

    def _layer_slices(self) -> list[slice]:
        """Where each layer lies in the joint order."""
        ends = np.cumsum([t * m for t, m in zip(self.num_latent_gps, self.num_inducing)])
        return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends)]

    def _dense_mask(self) -> np.ndarray:
        """The pattern entry by entry: [T M, T M]."""
        sizes = self._gp_sizes()
        return np.tril(np.repeat(np.repeat(self.pattern, sizes, axis=0), sizes, axis=1))


def initial_factors(layers: Sequence[GPLayer], hidden_scale: float) -> list[np.ndarray]:
    """
    Initial diagonal blocks of the factor, per layer [T_l, M_l, M_l]: a multiple of the prior's factor,
    ``hidden_scale`` in hidden layers and 1 at the output.

    :raises ValueError: where it is not positive.
    """
    hidden_scale = check_positive_number(hidden_scale, "hidden_scale")
    factors = []
    for index, layer in enumerate(layers):
        scale = 1.0 if index == len(layers) - 1 else hidden_scale
        prior = np.eye(layer.num_inducing) if layer.whiten else np.asarray(layer.factorise())
        shape = [layer.num_latent_gps, layer.num_inducing, layer.num_inducing]
        factors.append(scale * np.broadcast_to(prior, shape).astype(gpflow.default_float()))
    return factors


def stack_means(q_mu: Sequence[Parameter], read: Read) -> tf.Tensor:
    """The mean [T M] in the joint order, of each layer's [M, T]."""
    return tf.concat([tf.reshape(tf.transpose(read(mean)), [-1]) for mean in q_mu], axis=0)


def log_abs_diagonal(factor: TensorType) -> tf.Tensor:
    """Sum of log |diagonal|: as in GPflow, nothing keeps the diagonal positive but its own gradient."""
    return 0.5 * tf.reduce_sum(tf.math.log(tf.square(tf.linalg.diag_part(factor))))


def diagonal_blocks(own: tf.Tensor) -> tf.Tensor:
    """Of a layer's covariance [T, M, M] or [T, T, M, M] the blocks of each GP with itself: [T, M, M]."""
    if own.shape.rank == 3:
        return own
    return tf.einsum("ttmn->tmn", own)


def _subtract_prior(own: tf.Tensor, factor: tf.Tensor | None) -> tf.Tensor:
    """A layer's covariance [T, M, M] or [T, T, M, M] less the prior's."""
    if factor is None:
        prior = tf.eye(own.shape[-1], dtype=own.dtype)
    else:
        prior = tf.matmul(factor, factor, transpose_b=True)
    if own.shape.rank == 3:
        return own - prior
    T = own.shape[0]
    return own - tf.eye(T, dtype=own.dtype)[:, :, None, None] * prior
