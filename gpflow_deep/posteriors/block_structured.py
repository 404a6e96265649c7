"""Any structure a user can name, and full coupling: the masked dense factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, TensorType

from ..layers import GPLayer, Projection
from ..numerics.bijectors import PackedBlocks
from ..numerics.factorisations import add_jitter, cholesky
from ..numerics.forms import covariance_forms, pair_forms
from ..numerics.linalg import triangular_grams
from ..validation import as_real_array, check_one_replica, check_sequence_of
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
)
from .mean_field import project_mean

__all__ = ["BlockStructured", "FullyCoupled", "transitive_closure"]


class _Blocks(NamedTuple):
    """One layer of q, and its covariance with each layer k below it and with itself."""

    mean: tf.Tensor  # [M, T]
    below: list[tf.Tensor]  # [T_l, T_k, M_l, M_k] for each k < l
    own: tf.Tensor  # [T_l, T_l, M_l, M_l]


def project_covariance(projection: Projection, own: tf.Tensor) -> tf.Tensor:
    """S~ of a layer [S, N, T, T], for ``own`` [T, T, M, M], the covariance of its GPs less the prior's."""
    forms = covariance_forms(projection.basis, own)
    # By masks: the gradients of parts of a diagonal are far slower.
    eye = np.eye(own.shape[0], dtype=bool)
    forms += tf.where(eye, projection.variance[..., None], tf.zeros([], forms.dtype))
    # Never negative in exact arithmetic; in float32 rounding makes it so.
    return tf.where(eye, tf.maximum(forms, 0.0), forms)


class BlockStructured(InducingPosterior):
    """
    q(v) = N(m, L L^T) with any user-given pattern of M x M blocks in the lower-triangular L.

    It is treated as a dense factor that is zero outside the pattern: the readable definition that
    every faster structure must equal, for one more idea than it costs flops.

    ``q_mu`` [T M, 1] and ``q_sqrt`` [1, T M, T M] are in GPflow's shapes.

    The output coupled with the first hidden GP only:

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> q = gd.posteriors.BlockStructured(layers, [[1, 0, 0], [0, 1, 0], [1, 0, 1]])
    >>> model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.01), posterior=q)
    >>> mean, scale_tril = q.dense()
    >>> scale_tril.shape
    TensorShape([15, 15])

    :param pattern: [T, T], boolean, lower triangular: which GP pairs (row, column) are coupled in the
        factor; T is the number of GPs of all layers, in the joint order.
    :param hidden_scale: initial factor of q in hidden layers, as a multiple of the prior's.
    :raises ValueError: where the pattern is not a lower-triangular [T, T] array with a full diagonal.
    """

    def __init__(
        self,
        layers: Sequence[GPLayer],
        pattern: TensorType,
        hidden_scale: float = HIDDEN_SCALE,
        name: str | None = None,
    ) -> None:
        super().__init__(layers, name=name)
        self._pattern = _check_pattern(pattern, sum(self.num_latent_gps))
        self._check_memory()
        size = sum(self._gp_sizes())
        self.q_mu = Parameter(np.zeros((size, 1)), dtype=gpflow.default_float())
        initial = initial_factors(layers, hidden_scale)
        blocks = [tf.linalg.LinearOperatorFullMatrix(b) for factor in initial for b in factor]
        factor = tf.linalg.LinearOperatorBlockDiag(blocks).to_dense()[None]
        self.q_sqrt = Parameter(factor, transform=PackedBlocks(self._pattern, self._gp_sizes()))

    @property
    def pattern(self) -> np.ndarray:
        return self._pattern.copy()

    def _mean(self, read: Read = tf.convert_to_tensor) -> Any:
        return read(self.q_mu)[:, 0]

    def _factor(self, read: Read = tf.convert_to_tensor) -> Any:
        return read(self.q_sqrt)

    def _block(self, factor: Any, row: GP, column: GP) -> Any:
        (l, t), (k, u) = row, column
        rows, columns = (self._layer_slices()[layer].start for layer in (l, k))
        M, K = self.num_inducing[l], self.num_inducing[k]
        return factor[0, rows + t * M : rows + (t + 1) * M, columns + u * K : columns + (u + 1) * K]

    def _layer_moments(self, factor: tf.Tensor) -> list[_Blocks]:
        widths, points = self.num_latent_gps, self.num_inducing
        # Not by an index, whose gradient would write all of it anew.
        matrix = tf.squeeze(factor, axis=0)
        grams = triangular_grams(matrix, [[M] * T for T, M in zip(widths, points)])
        means = tf.split(
            tf.convert_to_tensor(self.q_mu)[:, 0], [T * M for T, M in zip(widths, points)]
        )
        layers = []
        for l, (mean, row) in enumerate(zip(means, grams)):
            mean = tf.transpose(tf.reshape(mean, [widths[l], points[l]]))
            blocks = [self._as_blocks(l, k, product) for k, product in enumerate(row)]
            layers.append(_Blocks(mean, blocks[:-1], blocks[-1]))
        return layers

    def recursion(self, moments: Moments, jitter: float) -> Recursion:
        return _DenseRecursion(moments.layers, jitter)

    def dense(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self._mean(), self._factor()[0]

    def _assign(self, mean: np.ndarray, scale_tril: np.ndarray) -> None:
        self.q_mu.assign(mean[:, None])
        self.q_sqrt.assign(scale_tril[None])

    def _as_blocks(self, above: int, below: int, matrix: tf.Tensor) -> tf.Tensor:
        """[T_l M_l, T_k M_k] as [T_l, T_k, M_l, M_k]."""
        shape = [self.num_latent_gps[above], self.num_inducing[above]]
        shape += [self.num_latent_gps[below], self.num_inducing[below]]
        return tf.transpose(tf.reshape(matrix, shape), [0, 2, 1, 3])

    def _log_determinant(self, factor: tf.Tensor) -> tf.Tensor:
        return log_abs_diagonal(factor)

    def _factor_times(self, factor: tf.Tensor, noise: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        num_samples = tf.shape(noise[0])[0]
        joint = tf.concat([tf.reshape(e, [num_samples, e.shape[1] * e.shape[2]]) for e in noise], 1)
        product = tf.matmul(joint, factor[0], transpose_b=True)  # [S, T M]
        parts = tf.split(product, [s.stop - s.start for s in self._layer_slices()], axis=1)
        return [
            tf.reshape(part, [num_samples, t, m])
            for part, t, m in zip(parts, self.num_latent_gps, self.num_inducing)
        ]

    def output_factor(self, moments: Moments) -> tf.Tensor:
        P, M = self.num_latent_gps[-1], self.num_inducing[-1]
        return tf.reshape(moments.factor[0, -P * M :, -P * M :], [P, M, P * M])


class FullyCoupled(BlockStructured):
    """
    q(v) = N(m, L L^T) with a full lower-triangular L: every GP of every layer coupled with every other
    (Lindinger et al. 2020, section 3). The most flexible and the dearest structure.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> gd.posteriors.FullyCoupled(layers).pattern.astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])

    :param hidden_scale: initial factor of q in hidden layers, as a multiple of the prior's.
    """

    def __init__(
        self,
        layers: Sequence[GPLayer],
        hidden_scale: float = HIDDEN_SCALE,
        name: str | None = None,
    ) -> None:
        check_sequence_of(layers, GPLayer, "layers")
        num_gps = sum(layer.num_latent_gps for layer in layers)
        pattern = np.tril(np.ones((num_gps, num_gps), dtype=bool))
        super().__init__(layers, pattern, hidden_scale, name=name)

    @property
    def variational_params(self) -> list[tuple[Parameter, Parameter]]:
        check_one_replica()
        return [(self.q_mu, self.q_sqrt)]


def transitive_closure(pattern: TensorType) -> np.ndarray:
    """
    The smallest pattern that contains this one and (i, k) wherever it contains (i, j) and (j, k).

    Factors of such a pattern are closed under product and inverse, which natural gradients need (Lin,
    Nielsen, Khan & Schmidt 2021, *Tractable structured natural-gradient descent using local
    parameterizations*).

    >>> chain = [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    >>> gd.posteriors.transitive_closure(chain).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])

    :param pattern: [T, T], boolean, lower triangular, as :class:`BlockStructured` takes it.
    :raises ValueError: where it is not.
    """
    closure = _check_pattern(pattern)
    for j in range(len(closure)):  # Warshall's algorithm
        closure = closure | (closure[:, j, None] & closure[j])
    return closure


class _DenseRecursion(Recursion):
    """
    The Cholesky factorisation of S~ by rows: with G its factor, f = mu~ + G z. Layer by layer,
    R = G^-1 S~_{below, l}; mean = mu~ + R^T z; covariance = S~_ll - R^T R; one small Cholesky.
    """

    def __init__(self, layers: Sequence[_Blocks], jitter: float) -> None:
        super().__init__(jitter)
        self._layers = layers
        self._bases: list[tf.Tensor] = []
        self._below: list[list[tf.Tensor]] = []  # per layer its R, block by block: [S, N, T_k, T_l]
        self._own: list[tf.Tensor] = []  # per layer the diagonal block of G: [S, N, T_l, T_l]
        self._noise: list[tf.Tensor] = []  # per layer z as a column: [S, N, T_l, 1]

    def condition(self, projection: Projection) -> Conditional:
        layer = self._layers[len(self._bases)]
        mean = project_mean(projection, layer.mean)
        covariance = project_covariance(projection, layer.own)

        R: list[tf.Tensor] = []
        for k, block in enumerate(layer.below):
            right = tf.linalg.matrix_transpose(pair_forms(projection.basis, block, self._bases[k]))
            for j in range(k):
                right -= tf.matmul(self._below[k][j], R[j], transpose_a=True)
            R.append(tf.linalg.triangular_solve(self._own[k], right))
            mean += tf.matmul(R[k], self._noise[k], transpose_a=True)[..., 0]
            covariance -= tf.matmul(R[k], R[k], transpose_a=True)

        self._bases.append(projection.basis)
        self._below.append(R)
        self._conditional = Conditional(mean, covariance)
        return self._conditional

    def sample(self, noise: tf.Tensor) -> tf.Tensor:
        mean, covariance = self._conditional
        what = f"the covariance of the GPs of layer {len(self._own)} at a point"
        self._own.append(cholesky(add_jitter(covariance, self.jitter), what, {}))
        self._noise.append(noise[..., None])
        return mean + tf.matmul(self._own[-1], self._noise[-1])[..., 0]


def _check_pattern(pattern: TensorType, num_gps: int | None = None) -> np.ndarray:
    array = as_real_array(pattern, "pattern")
    if num_gps is None:
        num_gps = array.shape[0] if array.ndim else 1
    if array.shape != (num_gps, num_gps):
        raise ValueError(
            f"pattern: expected shape [{num_gps}, {num_gps}], one row and column for each GP of all"
            f" layers, got {list(array.shape)}."
        )
    if array.dtype.kind not in "biuf" or not np.isin(array, [0, 1]).all():
        raise ValueError(f"pattern: expected boolean entries, got {pattern!r}.")
    array = array.astype(bool)
    if np.triu(array, 1).any():
        row, column = np.argwhere(np.triu(array, 1))[0]
        raise ValueError(
            f"pattern: expected a lower-triangular array, got an entry above the diagonal at"
            f" ({row}, {column})."
        )
    if not array.diagonal().all():
        raise ValueError(
            f"pattern: expected every GP to be coupled with itself, got no diagonal entry at"
            f" {int(np.argmin(array.diagonal()))}."
        )
    return array
