r"""
The posterior of FITC-EP: q(u) proportional to p(u) g(u)^N, with one Gaussian factor tied over the data.

For one GP with prior covariance K of its inducing outputs u, the N factors together are

.. math:: g(u)^N \propto \exp(-\tfrac12 u^T T_1 u + T_2^T u), \quad T_1 = L L^T, \quad T_2 = L z,

which says that L^T u has been observed as z with unit noise. So q is the posterior of a GP regression and
all that is wanted of it comes from :math:`S_b = I + b L^T K L`, whose eigenvalues are at least 1: K is never
inverted, nor factorised. The power b is 1 for q and :math:`1 - \alpha / N` for the cavity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import Module, Parameter, TensorType

from ..layers import GPLayer
from ..numerics.bijectors import PackedTriangular, in_units_of
from ..numerics.factorisations import cholesky
from ..validation import check_memory, check_positive_number, check_seed, check_sequence_of
from .records import Record

__all__ = ["TiedFactor", "Weights"]

_SERIES_BELOW = 1.0 / 64.0
_LEAST_PRECISION = 1e-10  # of a direction that has no factor, as a share of the prior's
_ROUNDING = 1e-12  # of eigenvalues, as a share of the largest


class Weights(NamedTuple):
    """
    What a posterior of the inducing outputs does to a layer's functions at an input h: they have the
    mean ``k(h, Z) mean`` and the variance ``k(h, h) - k(h, Z) reduction k(Z, h)``. In float64, as all that
    is computed from K.
    """

    mean: tf.Tensor  # [T, M]
    reduction: tf.Tensor  # [T, M, M]

    def inducing_moments(self, factor: tf.Tensor, whiten: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean [T, M] and covariance [T, M, M] of the inducing outputs u.

        :param factor: Cholesky factor L_K of the prior's covariance, [M, M] or [T, M, M].
        :param whiten: of L_K^-1 u instead.
        """
        factor = tf.cast(factor, tf.float64)
        mean = tf.linalg.matvec(factor, self.mean, transpose_a=True)
        reduction = tf.matmul(factor, tf.matmul(self.reduction, factor), transpose_a=True)
        covariance = _identity(reduction) - reduction
        if not whiten:
            mean = tf.linalg.matvec(factor, mean)
            covariance = tf.matmul(factor, tf.matmul(covariance, factor, transpose_b=True))
        float_type = gpflow.default_float()
        return tf.cast(mean, float_type), tf.cast(covariance, float_type)


class TiedFactor(Module):
    r"""
    The tied factors of all GPs of a deep GP, independent of each other (Bui et al. 2016, section 3).

    L and z grow as the square root of the number of data. They are a multiple of their free numbers, so that
    one learning rate serves all parameters of a model.

    >>> layers = gd.layers.build_separate_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> precision, linear = gd.posteriors.TiedFactor(layers).natural_parameters(0)
    >>> precision.shape, linear.shape
    (TensorShape([2, 5, 5]), TensorShape([2, 5]))

    :param layers: the layers whose inducing outputs the posterior is over. Only their sizes are kept.
    :param scale: the multiple.
    :param seed: of the small random initial values that tell the GPs of a layer apart.
    """

    def __init__(
        self,
        layers: Sequence[GPLayer],
        *,
        scale: float = 3.0,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        scale = check_positive_number(scale, "scale")
        check_sequence_of(layers, GPLayer, "layers")
        self.num_latent_gps = tuple(layer.num_latent_gps for layer in layers)
        self.num_inducing = tuple(layer.num_inducing for layer in layers)
        # The factor, and what is kept beside it.
        numbers = sum(2 * T * M * M for T, M in zip(self.num_latent_gps, self.num_inducing))
        check_memory(numbers, f"factors of {sum(self.num_latent_gps)} GPs", "layers")
        rng = np.random.default_rng(check_seed(seed))
        self.precision_sqrt, self.targets = [], []
        # E E^T, by which q is wider than the prior, which no factor makes it: to be taken from the reduction.
        self.excess_sqrt: list[Record] = []
        for T, M in zip(self.num_latent_gps, self.num_inducing):
            factor: np.ndarray = np.broadcast_to(np.eye(M), [T, M, M])
            self.precision_sqrt.append(Parameter(factor, transform=_positive_triangular(M, scale)))
            targets = 0.1 * rng.standard_normal([T, M])
            self.targets.append(Parameter(targets, transform=in_units_of(scale)))
            self.excess_sqrt.append(Record(np.zeros([T, M, M], gpflow.default_float())))

    @property
    def variational_params(self) -> list[tuple[Parameter, Parameter]]:
        """
        The (q_mu, q_sqrt) pairs that ``gpflow.optimizers.NaturalGradient`` takes.

        :raises NotImplementedError: there are none.
        """
        raise NotImplementedError(
            "gpflow.optimizers.NaturalGradient updates q_mu and q_sqrt: MeanField and FullyCoupled have"
            " them, TiedFactor has natural parameters. Train it with Adam, or with"
            " gpflow_deep.optimizers.StochasticEP."
        )

    def natural_parameters(self, layer: int) -> tuple[tf.Tensor, tf.Tensor]:
        """T_1 [T, M, M] and T_2 [T, M] of the N factors together."""
        factor = tf.convert_to_tensor(self.precision_sqrt[layer])
        T1 = tf.matmul(factor, factor, transpose_b=True)
        return T1, tf.linalg.matvec(factor, self.targets[layer])

    @check_shapes(
        "precision: [T, M, M]",
        "linear: [T, M]",
    )
    def assign_natural_parameters(
        self, layer: int, precision: TensorType, linear: TensorType
    ) -> None:
        """
        Set T_1 and T_2 of the N factors together.

        :raises ValueError: where a T_1 is not positive definite.
        """
        precision = np.asarray(precision, np.float64)
        try:
            factor = np.linalg.cholesky(precision)
        except np.linalg.LinAlgError:
            smallest = np.linalg.eigvalsh(precision).min()
            raise ValueError(
                f"precision: expected positive definite matrices for layer {layer}, got the eigenvalue"
                f" {smallest:.3g}."
            ) from None
        targets = np.linalg.solve(factor, np.asarray(linear, np.float64)[..., None])[..., 0]
        self.precision_sqrt[layer].assign(factor)
        self.targets[layer].assign(targets)
        self.excess_sqrt[layer].assign(tf.zeros_like(self.excess_sqrt[layer]))

    def assign_product(
        self, layer: int, factor: TensorType, precision: TensorType, linear: TensorType
    ) -> None:
        r"""
        Let q be the prior times other factors, whose product need not be one that a tied factor can have: it
        may be indefinite as long as q is a Gaussian, and of any rank.

        With :math:`W = U \Lambda U^T`, a direction in which q is narrower than the prior is the tied
        factor's. Of one in which it is wider the tied factor has the mean, and q what its variance is larger
        by, until other parameters are assigned; :meth:`natural_parameters` and :meth:`cavity` know of the
        factor alone.

        :param layer: the layer's index.
        :param factor: Cholesky factor L_K of the prior's covariance [T, M, M].
        :param precision: W [T, M, M] of the product, in the coordinates v with u = L_K v; I + W is positive
            definite.
        :param linear: likewise [T, M].
        """
        inverse = np.linalg.inv(np.asarray(factor, np.float64))
        values, vectors = np.linalg.eigh(np.asarray(precision, np.float64))
        projected = np.einsum("tmk,tm->tk", vectors, np.asarray(linear, np.float64))
        own = np.maximum(values, _LEAST_PRECISION)
        # Not what rounding makes of an eigenvalue of zero.
        is_wider = values < -_ROUNDING * np.maximum(values[:, -1:], 1.0)
        excess = np.where(is_wider, 1.0 / (1.0 + values) - 1.0 / (1.0 + own), 0.0)
        mean = projected / (1.0 + np.where(is_wider, values, own))
        # B^T B = L L^T with B = Lambda^(1/2) U^T L_K^-1: no product is formed, whose smallest eigenvalues
        # rounding would make negative.
        directions = np.matmul(vectors.transpose(0, 2, 1), inverse)
        orthogonal, upper = np.linalg.qr(np.sqrt(own)[..., None] * directions)
        signs = np.where(np.einsum("tmm->tm", upper) < 0.0, -1.0, 1.0)
        targets = np.einsum("tmk,tm->tk", orthogonal, mean * (1.0 + own) / np.sqrt(own))
        self.precision_sqrt[layer].assign((signs[..., None] * upper).transpose(0, 2, 1))
        self.targets[layer].assign(signs * targets)
        self.excess_sqrt[layer].assign((np.sqrt(excess)[..., None] * directions).transpose(0, 2, 1))

    def weights(self, layer: int, covariance: tf.Tensor, power: TensorType) -> Weights:
        """
        The weights of p(u) g(u)^(power N).

        :param covariance: the prior's, [M, M] or [T, M, M], in float64.
        :param power: b; 1 for q.
        """
        mean, reduction = self._solve(layer, covariance, power).weights
        if isinstance(power, float) and power == 1.0:
            root = tf.cast(self.excess_sqrt[layer], tf.float64)
            reduction -= tf.matmul(root, root, transpose_b=True)
        return Weights(mean, reduction)

    def cavity(
        self, layer: int, covariance: tf.Tensor, fraction: TensorType
    ) -> tuple[Weights, tf.Tensor]:
        r"""
        The weights of the cavity, and what a layer adds to the energy,
        :math:`\sum_t (1 - 1/\epsilon) \phi(q) + \phi(cavity) / \epsilon - \phi(prior)`.

        With :math:`b = 1 - \epsilon`, :math:`S_b = C C^T`, :math:`D = C^{-1} L^T K L C^{-T}` and
        :math:`c = C^{-1} z`, :math:`S_1 = C (I + \epsilon D) C^T` and the terms that cancel drop out:

        .. math::
            -\tfrac12 \log|S_b| + \tfrac{b}{2\epsilon} \log|I + \epsilon D|
            - \tfrac b2 c^T (I + \epsilon D)^{-1} D c,

        minus the KL divergence from the prior for :math:`\epsilon = 0`.

        :param covariance: the prior's, [M, M] or [T, M, M], in float64.
        :param fraction: :math:`\epsilon = \alpha / N`, the share of the factors that the cavity lacks.
        """
        power = 1.0 - fraction
        weights, root, half, c = self._solve(layer, covariance, power)
        D = tf.matmul(half, tf.matmul(covariance, half, transpose_b=True))
        log_determinant = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))
        rate, solved = small_perturbation(D, fraction, tf.linalg.matvec(D, c))
        energy = log_determinant - power * (rate - tf.reduce_sum(c * solved))
        return weights, -0.5 * energy

    def _solve(self, layer: int, covariance: tf.Tensor, power: TensorType) -> _Solved:
        factor = tf.cast(self.precision_sqrt[layer], tf.float64)  # L
        targets = tf.cast(self.targets[layer], tf.float64)  # z
        # Not by a cast, which takes Python's numbers through float32.
        power = tf.convert_to_tensor(power, tf.float64)
        H = tf.matmul(factor, tf.matmul(covariance, factor), transpose_a=True)
        root = cholesky(
            _identity(H) + power * H,
            f"I + b L^T K_MM L of layer {layer}",
            {"largest entry of L": tf.reduce_max(tf.abs(factor))},
        )
        half = tf.linalg.triangular_solve(root, tf.linalg.matrix_transpose(factor))
        c = tf.linalg.triangular_solve(root, targets[..., None])
        mean = power * tf.matmul(half, c, transpose_a=True)[..., 0]
        reduction = power * tf.matmul(half, half, transpose_a=True)
        return _Solved(Weights(mean, reduction), root, half, c[..., 0])


class _Solved(NamedTuple):
    """With C the Cholesky factor of S_b:"""

    weights: Weights
    root: tf.Tensor  # C
    half: tf.Tensor  # C^-1 L^T
    targets: tf.Tensor  # C^-1 z


def small_perturbation(
    D: tf.Tensor, fraction: TensorType, x: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    ``sum log|I + fraction D| / fraction`` (the sum of the traces for fraction 0) and
    ``(I + fraction D)^-1 x`` without cancellation, for positive semidefinite D [T, M, M] and x [T, M].

    A small fraction of a D of eigenvalues up to about 1, such as a cavity's, has a short power series, as
    exact as the traces; the logarithm itself has digits enough where the fraction is large.
    """
    known = tf.get_static_value(fraction)
    if known is None or known > _SERIES_BELOW:
        fraction = tf.convert_to_tensor(fraction, D.dtype)
        root = tf.linalg.cholesky(_identity(D) + fraction * D)
        rate = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root))) / fraction
        return rate, tf.linalg.cholesky_solve(root, x[..., None])[..., 0]
    known = float(known)
    num_terms = 1 if known == 0 else math.ceil(math.log(1e-17) / math.log(1.02 * known))
    powers = [_identity(D), D]
    while len(powers) - 1 < (num_terms + 1) // 2:
        powers.append(tf.matmul(powers[-1], D))
    rate, solution = tf.zeros([], D.dtype), x
    for k in range(num_terms, 0, -1):
        trace = tf.reduce_sum(powers[k // 2] * powers[k - k // 2])
        rate += (-known) ** (k - 1) / k * trace
        if known > 0:
            solution = x - known * tf.linalg.matvec(D, solution)
    return rate, solution


def _identity(x: tf.Tensor) -> tf.Tensor:
    return tf.eye(x.shape[-1], dtype=x.dtype)


def _positive_triangular(size: int, scale: float) -> tfp.bijectors.Bijector:
    """Lower-triangular matrices with a positive diagonal, kept by its logarithm."""
    return tfp.bijectors.Chain(
        [
            in_units_of(scale),
            tfp.bijectors.TransformDiagonal(tfp.bijectors.Exp()),
            PackedTriangular.lower(size),
        ]
    )
