"""The posterior of Ober & Aitchison 2021: the prior times a Gaussian pseudo-likelihood."""

from __future__ import annotations

from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, TensorType

from ..layers.bayesian.designs import Design, ExplicitDesign
from ..layers.bayesian.precisions import Precision
from ..numerics.bijectors import PackedTriangular, in_units_of
from ..numerics.factorisations import MANY, SMALL, inverse_root
from ..numerics.linalg import cast_all, rows_times, shared_product
from ..validation import (
    check_choice,
    check_flag,
    check_inputs,
    check_memory,
    check_positive_integer,
    check_seed,
)
from .explained import Explained
from .layerwise import LayerPosterior
from .weight_space import WeightSpace, WhiteWeights

__all__ = ["PseudoObservations"]

#: One unit of a parameter is a factor e^3 of a precision or variance, so that all parameters move at one
#: pace (Ober & Aitchison 2021, Appendix G).
LOG_SCALE = 3.0


class PseudoObservations(LayerPosterior):
    r"""
    q(u | inducing inputs) proportional to p(u | inducing inputs) N(v; u - m, Lambda^{-1}) for each of the
    T GPs (Ober & Aitchison 2021, Eq. 17): as if the function, less its mean function m, had been observed
    at its inducing inputs as v, with noise of precision Lambda.

    >>> q = gd.posteriors.PseudoObservations(num_latent_gps=2, num_inducing=5, precision="shared")
    >>> q.precision_factor().shape
    TensorShape([1, 5, 5])

    :param num_latent_gps: number of GPs of the layer, T.
    :param num_inducing: number of its inducing points, M.
    :param precision: "full", one matrix Lambda [M, M] for all GPs; "shared", one diagonal; or "separate", a
        diagonal for each GP.
    :param observe_mean: whether the function itself is observed, its mean function included.
    :param num_positions: observations at each inducing point that share its precision: those at the positions
        of an image. There are M times as many of them.
    :param seed: of the pseudo-observations at the start: standard normal, and of precision e^-4.
    :raises ValueError: for another ``precision``, or a full one with several positions.
    """

    num_noise = 2

    def __init__(
        self,
        num_latent_gps: int,
        num_inducing: int,
        *,
        precision: str = "full",
        observe_mean: bool = False,
        num_positions: int = 1,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(num_latent_gps, num_inducing, name=name)
        self.precision = check_choice(precision, "precision", ("full", "shared", "separate"))
        T, M = self.num_latent_gps, self.num_inducing
        self.num_positions = check_positive_integer(num_positions, "num_positions")
        if precision == "full" and self.num_positions > 1:
            raise ValueError("precision: expected 'shared' or 'separate' for images, got 'full'.")
        self.observe_mean = check_flag(observe_mean, "observe_mean")
        largest = M * max(M if precision == "full" else 1, T * self.num_positions)
        check_memory(largest, f"the parameters of {M} inducing points", "num_inducing")
        self.pseudo_outputs = Parameter(
            np.random.default_rng(check_seed(seed)).standard_normal((M * self.num_positions, T)),
            dtype=gpflow.default_float(),
        )
        self.precision_diagonal = Parameter(
            np.full((T, M) if precision == "separate" else (1, M), np.exp(-4.0)),
            dtype=gpflow.default_float(),
            transform=tfp.bijectors.Chain([tfp.bijectors.Exp(), in_units_of(LOG_SCALE)]),
        )
        if precision == "full":
            below = PackedTriangular(np.tril(np.ones((M, M), dtype=bool), -1))
            self.precision_tril = Parameter(
                np.zeros((M, M)), dtype=gpflow.default_float(), transform=below
            )

    def assign_pseudo_outputs(self, pseudo_outputs: TensorType) -> None:
        """
        Set v.

        :param pseudo_outputs: [M, T]; of images, [M x positions, T].
        :raises ValueError: where it has another shape, or is not finite.
        """
        values = check_inputs(pseudo_outputs, "pseudo_outputs")
        if values.shape != tuple(self.pseudo_outputs.shape):
            raise ValueError(
                f"pseudo_outputs: expected shape {list(self.pseudo_outputs.shape)}, got"
                f" {list(values.shape)}."
            )
        self.pseudo_outputs.assign(values)

    def assign_precision(self, precision: TensorType) -> None:
        """
        Set Lambda.

        :param precision: positive definite [M, M] where it is "full"; else the diagonal, [M], or [T, M] where
            each GP has its own.
        :raises ValueError: where it has another shape, or is not positive (definite).
        """
        values = np.asarray(precision)
        shape = tuple(self.precision_diagonal.shape[self.precision != "separate" :])
        shape = shape * 2 if self.precision == "full" else shape
        if values.shape != shape:
            raise ValueError(f"precision: expected shape {list(shape)}, got {list(values.shape)}.")
        if self.precision == "full":
            try:
                factor = np.linalg.cholesky(values)
            except np.linalg.LinAlgError:
                raise ValueError(
                    "precision: expected a positive definite matrix, got one with the smallest eigenvalue"
                    f" {np.linalg.eigvalsh(values)[0]:.3g}."
                ) from None
            values = np.diag(factor)
            self.precision_tril.assign(np.tril(factor / values[:, None], -1))
            values = np.square(values)
        elif not (values > 0).all():
            raise ValueError(f"precision: expected positive values, got {values.min():.3g}.")
        self.precision_diagonal.assign(np.reshape(values, self.precision_diagonal.shape))

    def precision_factor(self) -> tf.Tensor:
        """R of Lambda = R R^T, lower triangular: [1 or T, M, M] in the default float."""
        root = tf.sqrt(self.precision_diagonal)
        if self.precision != "full":
            return tf.linalg.diag(root)
        unit = tf.linalg.set_diag(tf.convert_to_tensor(self.precision_tril), tf.ones_like(root[0]))
        return root[..., None] * unit

    def condition_weights(self, design: Design, precision: Precision) -> WhiteWeights:
        """
        The posterior of white weights of which the observed function is linear: in weight space where there
        are fewer of them than observations, else in function space.

        :param design: the design matrix at the inducing inputs.
        :param precision: the weights' prior precision.
        """
        if isinstance(design, ExplicitDesign) and self._are_few(design, precision):
            # In float32 the sums of precise observations, and what the prior's draw of a small precision
            # makes of them, lose the directions that only the prior knows, and with them the gradient.
            design, precision = design.cast(tf.float64), cast_all(precision, tf.float64)
        if isinstance(design, ExplicitDesign) and design.num_observations < design.fan_in:
            X = design.whiten(precision).matrix
            K = tf.matmul(X, X, transpose_b=True)
            return self.condition(K, X, tf.zeros([1, 1, 1], K.dtype))
        if isinstance(design, ExplicitDesign) and design.matrix.shape[0] != 1:
            scaled, outputs = self._scale(design.whiten(precision))
            gram, cross = scaled.gram(), scaled.project(outputs)
        else:
            # The sums come first: a convolution never writes its rows out, and one design is summed once.
            scaled, outputs = self._scale(design)
            gram = precision.whiten_gram(scaled.gram())
            cross = precision.whiten(scaled.project(outputs))
        return WeightSpace.from_statistics(gram, cross, self.name)

    def _are_few(self, design: ExplicitDesign, precision: Precision) -> bool:
        """Whether the matrices are inverted in float64 in any case: little next to what the points take."""
        if min(design.num_observations, design.fan_in) <= SMALL:
            return True
        draws = [design.matrix.shape[0], *(x.shape[0] for x in tf.nest.flatten(precision))]
        copies = self.precision_diagonal.shape[0]
        return all(S is not None and S * copies < MANY for S in draws)

    def _scale(self, design: Design) -> tuple[Design, tf.Tensor]:
        """R^T X and R^T v [1, T, observations], so that the pseudo-observations have unit precision."""
        outputs = tf.cast(tf.transpose(self.pseudo_outputs)[None], design.dtype)
        if isinstance(design, ExplicitDesign) and self.precision == "full":
            root = tf.cast(self.precision_factor(), design.dtype)
            scaled = ExplicitDesign(tf.matmul(root, design.matrix, transpose_a=True))
            return scaled, rows_times(outputs, root[None])
        roots = tf.sqrt(tf.cast(self.precision_diagonal, design.dtype))
        return design.scale(roots), outputs * tf.repeat(roots, self.num_positions, axis=1)

    def condition(self, K: tf.Tensor, factor: tf.Tensor, mean: tf.Tensor) -> FunctionSpace:
        root = tf.expand_dims(tf.cast(self.precision_factor(), K.dtype), 0)  # [1, 1 or T, M, M]
        if self.precision == "full":
            B = tf.matmul(root, shared_product(K, root), transpose_a=True)
        else:
            diagonal = tf.linalg.diag_part(root)
            B = diagonal[..., :, None] * K * diagonal[..., None, :]
        B += tf.eye(B.shape[-1], dtype=B.dtype)
        # B has no eigenvalue below 1: this inverse loses nothing.
        B_root, log_det = inverse_root(
            B, f"I + R^T K_MM R of {self.name}", {"precisions": self.precision_diagonal}
        )
        if self.precision == "full":
            whitener = shared_product(B_root, root, transpose=True)
        else:
            whitener = B_root * diagonal[..., None, :]
        outputs = tf.linalg.matrix_transpose(tf.cast(self.pseudo_outputs, K.dtype))[None]
        if self.observe_mean:
            outputs -= mean
        scaled = rows_times(outputs, whitener, transpose=True)
        return FunctionSpace(
            factor, root, B_root, log_det, whitener, outputs, scaled, rows_times(scaled, whitener)
        )


class FunctionSpace(NamedTuple):
    """
    In terms of B = I + R^T K_MM R = C C^T and W = C^-1 R^T: (K_MM + Lambda^-1)^-1 = W^T W, without K_MM^-1 or
    Lambda^-1.

    The observed values are X w for white w, where K_MM = X X^T. For a GP, X is the Cholesky factor of K_MM;
    for a layer of random weights it is its design matrix, and there are as many w as weights.
    """

    prior_factor: tf.Tensor  # X: [S, K, M, M], or [S, K, M, D]
    root: tf.Tensor  # R: [1, 1 or T, M, M]
    B_root: tf.Tensor  # C^-1: [S, K or T, M, M]
    log_det: tf.Tensor  # log |C^-1|: [S, K or T]
    whitener: tf.Tensor  # W: [S, K or T, M, M]
    outputs: tf.Tensor  # v: [S, T, M]
    scaled: tf.Tensor  # W v: [S, T, M]
    weights: tf.Tensor  # W^T W v: [S, T, M]

    def sample(self, noise: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """
        A draw of the prior, moved by its misfit to the pseudo-observations (Matheron's rule): w = e1 +
        X^T (K + Lambda^-1)^-1 (v - X e1 + R^-T e2).
        """
        prior, pseudo = noise
        misfit = self.outputs - rows_times(prior, self.prior_factor, transpose=True)
        misfit = rows_times(misfit, self.whitener, transpose=True)
        misfit += rows_times(pseudo, self.B_root, transpose=True)
        return prior + rows_times(rows_times(misfit, self.whitener), self.prior_factor)

    def log_ratio(self, whitened: tf.Tensor, noise: tuple[tf.Tensor, ...] = ()) -> tf.Tensor:
        """log N(R^T v; 0, B) - log N(R^T v; R^T u, I): Lambda^-1 does not enter."""
        del noise  # twice as much as a draw: not that of its density
        u = rows_times(whitened, self.prior_factor, transpose=True)
        residuals = rows_times(self.outputs - u, self.root)
        return 0.5 * _sum_of_squares(residuals) - self._evidence()

    def prior_kl(self) -> tf.Tensor:
        """The expectation of minus :meth:`log_ratio`, E|R^T (v - u)|^2 = |B^-1 R^T v|^2 + tr(I - B^-1)."""
        residuals = rows_times(self.scaled, self.B_root)  # C^-T W v
        traces = tf.reduce_sum(1.0 - tf.reduce_sum(tf.square(self.B_root), -2), [1, 2])
        return self._evidence() - 0.5 * (_sum_of_squares(residuals) + self._copies() * traces)

    def _evidence(self) -> tf.Tensor:
        """-log N(R^T v; 0, B), without its constant."""
        log_det = tf.reduce_sum(self.log_det, axis=1)
        return 0.5 * _sum_of_squares(self.scaled) - self._copies() * log_det

    def _copies(self) -> int:
        """How many GPs share one B."""
        return int(self.outputs.shape[1] // self.B_root.shape[1])

    def explain(self, Kuf: tf.Tensor) -> Explained:
        mean = tf.linalg.matrix_transpose(rows_times(self.weights, Kuf))
        return Explained(mean, tf.matmul(self.whitener, Kuf), None)

    def moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and variance [S, N, T] of outputs that are linear in w, which are integrated out.

        :param features: inputs, as they meet white weights: [S, N, D].
        """
        explained = self._explain_features(features)
        prior = tf.reduce_sum(tf.square(features), axis=-1)[:, None]
        return explained.mean, explained.variance(prior)

    def joint_moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Likewise with the covariance over the points: [S, K, N, N]."""
        explained = self._explain_features(features)
        prior = tf.matmul(features, features, transpose_b=True)[:, None]
        return explained.mean, explained.covariance(prior)

    def _explain_features(self, features: tf.Tensor) -> Explained:
        features = tf.expand_dims(features, 1)
        return self.explain(tf.matmul(self.prior_factor, features, transpose_b=True))


def _sum_of_squares(x: tf.Tensor) -> tf.Tensor:
    """Of [S, T, M]: [S]."""
    return tf.reduce_sum(tf.square(x), axis=[1, 2])
