"""The stripes-and-arrow posterior (Lindinger et al. 2020, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter

from ..layers import GPLayer, Projection
from ..numerics.bijectors import PackedTriangular
from ..numerics.factorisations import add_jitter, cholesky
from ..numerics.forms import diagonal_forms, pair_forms
from ..numerics.linalg import gram, shared_product
from .base import (
    GP,
    HIDDEN_SCALE,
    Conditional,
    InducingPosterior,
    Moments,
    Read,
    Recursion,
    initial_factors,
    log_abs_diagonal,
    stack_means,
)
from .block_structured import project_covariance
from .mean_field import project_mean, project_variance

__all__ = ["StripesAndArrow"]


class _Stripe(NamedTuple):
    """A hidden layer of q: GP t is coupled with the GPs of the same index t only."""

    mean: tf.Tensor  # [M, T]
    below: list[tf.Tensor]  # [min(T_l, T_k), M_l, M_k] for each k < l
    own: tf.Tensor  # [T, M, M]


class _Arrow(NamedTuple):
    """The output layer of q: every GP is coupled with every other."""

    mean: tf.Tensor  # [M, P]
    below: list[tf.Tensor]  # [P, T_k, M_L, M_k] for each hidden k
    own: tf.Tensor  # [P, P, M, M]


class _Factor(NamedTuple):
    """The stored blocks of L."""

    own: list[tf.Tensor]  # per hidden layer [T, M, M], then the output layer's [P M, P M]
    stripes: list[list[tf.Tensor]]  # per hidden layer l and k < l: [min(T_l, T_k), M_l, M_k]
    arrow: list[tf.Tensor]  # per hidden layer [P, T_k, M_L, M_k]


class StripesAndArrow(InducingPosterior):
    """
    q(v) = N(m, L L^T) with L coupling a hidden GP with the hidden GPs of the same index in other layers
    (stripes), and the output layer's GPs with all GPs (arrow).

    Its hidden layers are independent chains of scalars, so that conditioning is elementwise arithmetic:
    the cost of the small covariances is N tau L^3 instead of N (tau L)^3, and that of a step about two
    mean-field steps in all. Where hidden layers differ in width, a stripe runs through the layers that
    have a GP of its index.

    Stored: ``q_mu[l]`` [M, T] for each layer; ``q_sqrt[l]``, the triangular diagonal blocks [T, M, M] of a
    hidden layer and, last, the output layer's [1, P M, P M]; ``stripes[l][k]`` [min(T_l, T_k), M_l, M_k]
    for hidden k < l; ``arrow[k]`` [P, T_k, M_L, M_k].

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2, 2), num_inducing=5)
    >>> gd.posteriors.StripesAndArrow(layers).pattern.astype(int)
    array([[1, 0, 0, 0, 0],
           [0, 1, 0, 0, 0],
           [1, 0, 1, 0, 0],
           [0, 1, 0, 1, 0],
           [1, 1, 1, 1, 1]])

    :param hidden_scale: initial factor of q in hidden layers, as a multiple of the prior's.
    """

    def __init__(
        self,
        layers: Sequence[GPLayer],
        hidden_scale: float = HIDDEN_SCALE,
        name: str | None = None,
    ) -> None:
        super().__init__(layers, name=name)
        self._check_memory()
        widths, sizes = self.num_latent_gps, self.num_inducing
        float_type = gpflow.default_float()
        *hidden, output = initial_factors(layers, hidden_scale)
        joint = tf.linalg.LinearOperatorBlockDiag(
            [tf.linalg.LinearOperatorFullMatrix(block) for block in output]
        ).to_dense()[None]

        def zeros(*shape: int) -> Parameter:
            return Parameter(np.zeros(shape), dtype=float_type)

        self.q_mu = [zeros(m, t) for m, t in zip(sizes, widths)]
        self.q_sqrt = [
            Parameter(factor, transform=PackedTriangular.lower(factor.shape[-1]))
            for factor in [*hidden, joint]
        ]
        self.stripes = [
            [zeros(min(widths[l], widths[k]), sizes[l], sizes[k]) for k in range(l)]
            for l in range(self._num_hidden)
        ]
        self.arrow = [
            zeros(widths[-1], widths[k], sizes[-1], sizes[k]) for k in range(self._num_hidden)
        ]

    @property
    def _num_hidden(self) -> int:
        return len(self.num_latent_gps) - 1

    @property
    def pattern(self) -> np.ndarray:
        index = np.concatenate([np.arange(t) for t in self.num_latent_gps])
        pattern = index[:, None] == index[None, :]
        pattern[-self.num_latent_gps[-1] :, :] = True
        return np.tril(pattern)

    def _mean(self, read: Read = tf.convert_to_tensor) -> tf.Tensor:
        return stack_means(self.q_mu, read)

    def _factor(self, read: Read = tf.convert_to_tensor) -> _Factor:
        *hidden, output = [read(q_sqrt) for q_sqrt in self.q_sqrt]
        stripes = [[read(block) for block in row] for row in self.stripes]
        return _Factor([*hidden, output[0]], stripes, [read(block) for block in self.arrow])

    def _block(self, factor: _Factor, row: GP, column: GP) -> Any:
        (l, t), (k, u) = row, column
        if l < self._num_hidden:
            return factor.own[l][t] if k == l else factor.stripes[l][k][t]
        if k < l:
            return factor.arrow[k][t, u]
        return _blocks(factor.own[-1], self.num_latent_gps[-1])[t, u]

    def _layer_moments(self, factor: _Factor) -> list[_Stripe | _Arrow]:
        means = [tf.convert_to_tensor(q_mu) for q_mu in self.q_mu]
        rows = [[*stripes, own] for stripes, own in zip(factor.stripes, factor.own)]
        layers: list[_Stripe | _Arrow] = []
        for l, row in enumerate(rows):
            blocks = [self._stripe_covariance(row, lower) for lower in rows[: l + 1]]
            layers.append(_Stripe(means[l], blocks[:-1], blocks[-1]))
        below = [self._arrow_covariance(factor.arrow, row) for row in rows]
        layers.append(_Arrow(means[-1], below, self._output_moments(factor)))
        return layers

    def _stripe_covariance(self, row: Sequence[tf.Tensor], lower: Sequence[tf.Tensor]) -> tf.Tensor:
        """Blocks of L L^T between a hidden layer and a lower one (or itself): [t, M_l, M_k]."""
        width = min(row[-1].shape[0], lower[-1].shape[0])
        products = []
        for a, b in zip(row, lower):
            t = min(width, a.shape[0], b.shape[0])
            left, right = _first(a, t, axis=0), _first(b, t, axis=0)
            product = gram(left, True) if a is b else tf.matmul(left, right, transpose_b=True)
            products.append(_pad(product, width, axis=0))
        return tf.add_n(products)

    def _arrow_covariance(self, arrow: Sequence[tf.Tensor], row: Sequence[tf.Tensor]) -> tf.Tensor:
        """Blocks of L L^T between the output layer and a hidden one: [P, T_k, M_L, M_k]."""
        width = row[-1].shape[0]
        products = []
        for a, b in zip(arrow, row):
            t = min(width, a.shape[1], b.shape[0])
            product = shared_product(_first(a, t, axis=1), _first(b, t, axis=0), transpose=True)
            products.append(_pad(product, width, axis=1))
        return tf.add_n(products)

    def _output_moments(self, factor: _Factor) -> tf.Tensor:
        """Blocks of L L^T of the output layer: [P, P, M, M]."""
        P, M = self.num_latent_gps[-1], self.num_inducing[-1]
        arrow = [tf.reshape(tf.transpose(a, [0, 2, 1, 3]), [P * M, -1]) for a in factor.arrow]
        rows = tf.concat([*arrow, factor.own[-1]], axis=1)  # [P M, columns]
        return _blocks(gram(rows, True), P)

    def recursion(self, moments: Moments, jitter: float) -> Recursion:
        return _ChainRecursion(moments.layers, jitter)

    def _assign(self, mean: np.ndarray, scale_tril: np.ndarray) -> None:
        slices, widths, sizes = self._layer_slices(), self.num_latent_gps, self.num_inducing

        def blocks(l: int, k: int) -> np.ndarray:
            shape = [widths[l], sizes[l], widths[k], sizes[k]]
            return scale_tril[slices[l], slices[k]].reshape(shape).transpose(0, 2, 1, 3)

        for l in range(self._num_hidden):
            for k in range(l + 1):
                width = min(widths[l], widths[k])
                stripe = blocks(l, k)[range(width), range(width)]
                (self.q_sqrt[l] if k == l else self.stripes[l][k]).assign(stripe)
            self.arrow[l].assign(blocks(self._num_hidden, l))
        self.q_sqrt[-1].assign(scale_tril[slices[-1], slices[-1]][None])
        for q_mu, rows, t, m in zip(self.q_mu, slices, widths, sizes):
            q_mu.assign(mean[rows].reshape(t, m).T)

    def _log_determinant(self, factor: _Factor) -> tf.Tensor:
        return tf.add_n([log_abs_diagonal(own) for own in factor.own])

    def _factor_times(self, factor: _Factor, noise: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        products = []
        for l, (own, stripes) in enumerate(zip(factor.own, factor.stripes)):
            product = tf.einsum("tmk,stk->stm", own, noise[l])
            for stripe, e in zip(stripes, noise):
                part = tf.einsum("tmk,stk->stm", stripe, e[:, : stripe.shape[0]])
                product += _pad(part, self.num_latent_gps[l], axis=1)
            products.append(product)
        blocks = [*factor.arrow, _blocks(factor.own[-1], self.num_latent_gps[-1])]
        output = tf.add_n([tf.einsum("ptmk,stk->spm", a, e) for a, e in zip(blocks, noise)])
        return [*products, output]

    def output_factor(self, moments: Moments) -> tf.Tensor:
        P, M = self.num_latent_gps[-1], self.num_inducing[-1]
        return tf.reshape(moments.factor.own[-1], [P, M, P * M])


class _ChainRecursion(Recursion):
    """
    Hidden layers: for each index t a Cholesky factorisation of scalars, all t at once. Output layer: its
    covariance with each chain, whitened by that chain's factor.
    """

    def __init__(self, layers: Sequence[_Stripe | _Arrow], jitter: float) -> None:
        super().__init__(jitter)
        self._layers = layers
        self._bases: list[tf.Tensor] = []
        self._below: list[list[tf.Tensor]] = []  # per layer its R: [S, N, min(T_l, T_k)]
        self._own: list[tf.Tensor] = []  # per layer the diagonal of G: [S, N, T_l]
        self._noise: list[tf.Tensor] = []  # [S, N, T_l]

    def condition(self, projection: Projection) -> Conditional:
        layer = self._layers[len(self._bases)]
        mean = project_mean(projection, layer.mean)
        if isinstance(layer, _Arrow):
            self._conditional = self._condition_output(layer, projection, mean)
        else:
            self._conditional = self._condition_hidden(layer, projection, mean)
        self._bases.append(projection.basis)
        return self._conditional

    def _condition_hidden(
        self, layer: _Stripe, projection: Projection, mean: tf.Tensor
    ) -> Conditional:
        width = mean.shape[-1]
        variance = project_variance(projection, layer.own)
        R: list[tf.Tensor] = []
        for k, block in enumerate(layer.below):
            R.append(self._whiten(k, diagonal_forms(projection.basis, block, self._bases[k]), R))
            mean += _pad(R[k] * self._noise[k][..., : R[k].shape[-1]], width, axis=-1)
            variance -= _pad(tf.square(R[k]), width, axis=-1)
        self._below.append(R)
        return Conditional(mean, variance)

    def _condition_output(
        self, layer: _Arrow, projection: Projection, mean: tf.Tensor
    ) -> Conditional:
        covariance = project_covariance(projection, layer.own)
        R: list[tf.Tensor] = []
        for k, block in enumerate(layer.below):
            R.append(self._whiten(k, pair_forms(projection.basis, block, self._bases[k]), R))
            mean += tf.reduce_sum(R[k] * self._noise[k][..., None, :], axis=-1)
            covariance -= tf.matmul(R[k], R[k], transpose_b=True)
        return Conditional(mean, covariance)

    def _whiten(self, k: int, cross: tf.Tensor, R: Sequence[tf.Tensor]) -> tf.Tensor:
        """One step of the forward substitution G R = cross; the chains lie on the last axis."""
        width = cross.shape[-1]
        outputs = cross.shape.rank == 4

        def spread(x: tf.Tensor) -> tf.Tensor:
            return x[..., None, :] if outputs else x

        for row, r in zip(self._below[k], R):
            t = min(width, row.shape[-1], r.shape[-1])
            cross -= _pad(spread(row[..., :t]) * r[..., :t], width, axis=-1)
        return cross / spread(self._own[k][..., :width])

    def sample(self, noise: tf.Tensor) -> tf.Tensor:
        mean, covariance = self._conditional
        if covariance.shape.rank == 4:
            matrix = add_jitter(covariance, self.jitter)
            factor = cholesky(matrix, "the covariance of the output layer's GPs at a point", {})
            return mean + tf.linalg.matvec(factor, noise)
        # Rounding makes what is left of a variance negative where the layers below explain it all.
        self._own.append(tf.sqrt(tf.maximum(covariance, 0.0) + self.jitter))
        self._noise.append(noise)
        return mean + self._own[-1] * noise


def _blocks(matrix: tf.Tensor, num_gps: int) -> tf.Tensor:
    """[T M, T M] as [T, T, M, M]."""
    M = matrix.shape[0] // num_gps
    return tf.transpose(tf.reshape(matrix, [num_gps, M, num_gps, M]), [0, 2, 1, 3])


def _first(x: tf.Tensor, count: int, axis: int) -> tf.Tensor:
    """The first entries along ``axis``; where these are all, it costs the gradient nothing."""
    return x if count == x.shape[axis] else x[(slice(None),) * axis + (slice(count),)]


def _pad(x: tf.Tensor, width: int, axis: int) -> tf.Tensor:
    """``x`` with zeros after its entries along ``axis``, to ``width`` of them."""
    missing = width - x.shape[axis]
    if missing == 0:
        return x
    paddings = np.zeros([x.shape.rank, 2], int)
    paddings[axis, 1] = missing
    return tf.pad(x, paddings)
