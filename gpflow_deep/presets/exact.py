"""The exact GP: what every approximation is to be compared with, up to some thousands of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.kernels import Kernel
from gpflow.models import BayesianModel, GPModel, InternalDataTrainingLossMixin

from gpflow_deep.layers import GPLayer
from gpflow_deep.layers.covariances import covariance_matrix
from gpflow_deep.numerics.factorisations import cholesky, gaussian_log_density, triangular_inverse
from gpflow_deep.posteriors.mixture import (
    Mixture,
    sample_joint_mixture,
    sample_mixture,
)
from gpflow_deep.posteriors.mixture_predictor import MixturePredictor, Prediction
from gpflow_deep.posteriors.predictive import DeepGPPosterior
from gpflow_deep.validation import check_choice

from .parts import (
    ard_kernel,
    compute_dtype,
    initial_noise,
    likelihood_and_outputs,
    pseudo_targets,
)
from .registry import register
from .settings import CLASSES, Settings

__all__ = ["ExactGP", "constant", "exact_gp", "let_inputs_go", "rough_gp"]

#: Mean and deviation of the logarithm of the noise variance of standardised targets.
_LOG_NOISE = (-4.0, 1.0)
_LEAST_SCALE = 1e-3  # of labels, where all are one
_COVARIANCE = "the covariance of the targets"
_BLOCK = 1000  # rows of a triangular system that are solved at once


class _Conditioned(NamedTuple):
    """What predictions take of the data."""

    scale: tf.Tensor  # L [N, N], the Cholesky factor of the targets' covariance
    alpha: tf.Tensor  # L^-1 Y [N, P]
    inverse: tf.Tensor  # L^-1 [N, N] in float32, or nothing, [0, 0]
    weights: tf.Tensor  # L^-T L^-1 Y [N, P] beside it, or nothing, [0, P]


class ExactGP(MixturePredictor, GPModel, InternalDataTrainingLossMixin):
    r"""
    GPflow's ``GPR`` with the predictions of this package's models, a mixture of one Gaussian, and with rows
    that count several times: w observations of one target at one input are

    .. math:: N(y | f, \sigma^2)^w = N(y | f, \sigma^2 / w) (2 \pi \sigma^2)^{(1 - w) / 2} w^{-1/2}.

    :param data: inputs [N, D] and targets [N, P], for P GPs of one kernel.
    :param kernel: any GPflow kernel of one output.
    :param likelihood: Gaussian, of one variance.
    :param weights: how many observations each row is, positive [N]; one by default.
    :param compute_dtype: of the products that variances of predictions take, "float32" or "float64": GPflow's
        default float by default. In float32 these take a third of the time, with an error of about 1e-5 of
        the kernel's variance; means do not change.
    :raises ValueError: where it is neither.
    """

    @check_shapes(
        "data[0]: [N, D]",
        "data[1]: [N, P]",
        "weights: [N]",
    )
    def __init__(
        self,
        data: tuple[np.ndarray, np.ndarray],
        kernel: Kernel,
        likelihood: gpflow.likelihoods.Gaussian,
        weights: np.ndarray | None = None,
        compute_dtype: str | None = None,
    ) -> None:
        # GPModel's own constructor wants a mean function too.
        BayesianModel.__init__(self)
        X, Y = data
        weights = np.ones(len(X)) if weights is None else weights
        self.layers = [GPLayer(kernel, None, Y.shape[1])]
        self.likelihood = likelihood
        self.num_latent_gps = Y.shape[1]
        # Variables, so that what is saved with the parameters is all that predictions take.
        float_type = gpflow.default_float()
        if compute_dtype is None:
            compute_dtype = float_type.__name__
        self.compute_dtype = check_choice(compute_dtype, "compute_dtype", ("float32", "float64"))
        self.inputs, self.targets, self.weights = (
            tf.Variable(tf.cast(x, float_type), trainable=False) for x in (X, Y, weights)
        )

    @property
    def data(self) -> tuple[tf.Variable, tf.Variable]:
        """Inputs [N, D] and targets [N, P]."""
        return self.inputs, self.targets

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        """The kernel of all outputs."""
        return self.layers[0].kernel

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The log evidence."""
        return self.log_evidence(self.inputs, self.targets, self.weights)

    def log_evidence(self, X: tf.Tensor, Y: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """
        That of any data under these hyperparameters.

        :param X: inputs [N, D].
        :param Y: targets [N, P].
        :param weights: how many observations each row is, positive [N].
        """
        log_density = gaussian_log_density(self._covariance(X, weights), Y, _COVARIANCE)
        repeats = (1.0 - weights) * tf.math.log(2.0 * np.pi * self.likelihood.variance)
        repeats = tf.reduce_sum(repeats - tf.math.log(weights))
        return tf.cast(log_density, repeats.dtype) + 0.5 * self.num_latent_gps * repeats

    def posterior(self) -> DeepGPPosterior:
        """Predictions with the covariance of the data factorised once."""
        return DeepGPPosterior(self)

    def _covariance(self, X: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Of targets [N, N] that were observed at X [N, D] so often [N]."""
        K = covariance_matrix(self.kernel, tf.convert_to_tensor(X))
        return K + tf.linalg.diag(self.likelihood.variance / weights)

    def _factorise(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The Cholesky factor L [N, N] of the targets' covariance, and L^-1 Y [N, P]."""
        scale = cholesky(self._covariance(self.inputs, self.weights), _COVARIANCE, {})
        return scale, tf.linalg.triangular_solve(scale, self.targets)

    def decorrelate(self, targets: np.ndarray) -> tuple[np.ndarray, float]:
        """L^-1 ``targets`` [N, P] and log|L|, for the Cholesky factor L [N, N] of the targets' covariance."""
        scale = cholesky(self._covariance(self.inputs, self.weights), _COVARIANCE, {})
        columns = tf.linalg.triangular_solve(scale, tf.cast(targets, scale.dtype))
        log_determinant = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(scale)))
        return columns.numpy(), float(log_determinant)

    def _prepare(self) -> _Conditioned:
        scale, alpha = self._factorise()
        if self.compute_dtype == scale.dtype.name:
            nothing = tf.zeros([0, 0], tf.float32)
            return _Conditioned(scale, alpha, nothing, alpha[:0])
        # Float32 has digits enough for a product with the inverse, not for the inverse itself.
        inverse, weights = _invert(scale, alpha)
        return _Conditioned(scale, alpha, tf.cast(inverse, self.compute_dtype), weights)

    def _moments(
        self, Xnew: tf.Tensor, prepared: _Conditioned, full_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean [1, N, P], and the variance [1, N, 1] or the covariance [1, 1, N, N] of every output."""
        columns = covariance_matrix(self.kernel, tf.convert_to_tensor(self.inputs), Xnew)
        prior = self.kernel(Xnew, full_cov=full_cov)
        if prepared.inverse.shape[0] and not full_cov:
            mean = tf.matmul(columns, prepared.weights, transpose_a=True)[None]
            explained = _explained(prepared.inverse, tf.cast(columns, prepared.inverse.dtype))
            explained = tf.cast(explained, prior.dtype)
        else:
            A = _solve(prepared.scale, columns)
            mean = tf.matmul(A, prepared.alpha, transpose_a=True)[None]
            if full_cov:
                return mean, (prior - tf.matmul(A, A, transpose_a=True))[None, None]
            explained = tf.reduce_sum(tf.square(A), axis=0)
        # What rounding takes from a variance of nearly zero.
        return mean, tf.maximum(prior - explained, 0.0)[None, :, None]

    def _prediction(self, prepared: Any, num_samples: int | None, noise: Any) -> Prediction:
        if noise:
            raise ValueError(f"noise: expected none of an exact GP, got {len(noise)} tensors.")
        return prepared, [], tf.zeros([1], gpflow.default_float())

    def _mixture(self, X: tf.Tensor, prediction: Any, full_output_cov: bool = False) -> Mixture:
        prepared, _, log_weights = prediction
        mean, variance = self._moments(X, prepared, full_cov=False)
        variance = tf.broadcast_to(variance, tf.shape(mean))
        return Mixture(mean, tf.linalg.diag(variance) if full_output_cov else variance, log_weights)

    def _joint_mixture(self, X: tf.Tensor, prepared: Any, full_output_cov: bool = False) -> Mixture:
        mean, covariance = self._moments(X, prepared, full_cov=True)
        if full_output_cov:
            covariance = tf.einsum(
                "skij,pq->sipjq", covariance, tf.eye(self.num_latent_gps, dtype=mean.dtype)
            )
        else:
            covariance = tf.repeat(covariance, self.num_latent_gps, axis=1)
        return Mixture(mean, covariance, tf.zeros([1], mean.dtype))

    def _sample_f(self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: Any) -> tf.Tensor:
        if full_cov:
            return sample_joint_mixture(self._joint_mixture(X, prepared), num_samples)
        return sample_mixture(self._mixture(X, self._prediction(prepared, None, None)), num_samples)

    @tf.autograph.experimental.do_not_convert
    def leave_one_out(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Of each row predicted from all others: target minus mean [N, P], and the variance [N, 1] (Sundararajan
        & Keerthi 2001; Rasmussen & Williams 2006, Eqs. 5.10 to 5.12).
        """
        inverse, weights = _invert(*self._factorise())
        variances = 1.0 / tf.reduce_sum(tf.square(inverse), axis=0)[:, None]
        return variances * weights, variances

    @tf.autograph.experimental.do_not_convert
    def leave_parts_out(self, part: np.ndarray) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """
        What :meth:`leave_one_out` returns, and target minus mean [N, P] where with each row its whole part is
        left out: its block of the targets' precision solves for them.

        :param part: the number of each row's part, [N].
        """
        inverse, weights = _invert(*self._factorise())
        variances = 1.0 / tf.reduce_sum(tf.square(inverse), axis=0)[:, None]
        order, residuals = np.argsort(part, kind="stable"), []
        for rows in np.split(order, np.cumsum(np.bincount(part))[:-1]):
            columns = tf.gather(inverse, rows, axis=1)
            factor = cholesky(tf.matmul(columns, columns, transpose_a=True), _COVARIANCE, {})
            residuals.append(tf.linalg.cholesky_solve(factor, tf.gather(weights, rows)))
        apart = tf.gather(tf.concat(residuals, axis=0), np.argsort(order))
        return variances * weights, variances, apart


def _invert(scale: tf.Tensor, alpha: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """L^-1 [N, N], and L^-T alpha [N, P]."""
    inverse = triangular_inverse(scale)
    return inverse, tf.matmul(inverse, alpha, transpose_a=True)


def _solve(factor: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """
    ``factor^-1 columns`` for a lower triangular factor [N, N], a block of rows after the other: most of the
    work is then in matrix products, which use all cores, where TensorFlow's solver uses one.
    """
    blocks: list[tf.Tensor] = []
    for start in range(0, factor.shape[0], _BLOCK):
        rows = slice(start, start + _BLOCK)
        part = columns[rows]
        if blocks:
            part -= tf.matmul(factor[rows, :start], tf.concat(blocks, axis=0))
        blocks.append(tf.linalg.triangular_solve(factor[rows, rows], part))
    return tf.concat(blocks, axis=0)


def _explained(inverse: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Squared norms [B] of ``inverse columns``, of a lower triangular inverse [N, N] multiplied as such."""
    norms = tf.zeros(tf.shape(columns)[1], columns.dtype)
    for start in range(0, inverse.shape[0], _BLOCK):
        end = start + _BLOCK
        product = tf.matmul(inverse[start:end, :end], columns[:end])
        norms += tf.reduce_sum(tf.square(product), axis=0)
    return norms


class _FreeAboveMedian(tfp.distributions.LogNormal):
    """A log-normal density of the logarithm, but above the median constant, and so not normalised."""

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        deviations = (tf.math.log(value) - self.loc) / self.scale
        return -0.5 * tf.square(tf.minimum(deviations, 0.0))


def let_inputs_go(model: ExactGP) -> bool:
    """
    Change the prior of the lengthscales, if there is one, so that it says nothing of long ones: an input may
    not count at all. That is for a fit to end with, as an input that has gone does not come back.

    :return: whether there is one.
    """
    prior = model.kernel.lengthscales.prior
    if prior is None:
        return False
    model.kernel.lengthscales.prior = _FreeAboveMedian(prior.loc, prior.scale)
    return True


def _log_normal(mean: float, sd: float) -> tfp.distributions.LogNormal:
    return tfp.distributions.LogNormal(*map(gpflow.utilities.to_default_float, (mean, sd)))


def _gaussian(settings: Settings, what: str) -> gpflow.likelihoods.Gaussian:
    """Of one variance, with which all columns have one covariance."""
    if settings.likelihood != "gaussian":
        raise ValueError(f"likelihood: expected gaussian for {what}, got {settings.likelihood}.")
    return gpflow.likelihoods.Gaussian(
        initial_noise(settings), variance_lower_bound=settings.noise_floor
    )


def _exact_gp(X: np.ndarray, Y: np.ndarray, settings: Settings) -> ExactGP:
    likelihood = _gaussian(settings, "the exact GP")
    name = "matern52" if settings.kernel == "own" else settings.kernel
    kernel = ard_kernel(settings, X.shape[1], name)
    return ExactGP((X, Y), kernel, likelihood, compute_dtype=compute_dtype(settings))


def _labels(Y: np.ndarray, settings: Settings) -> np.ndarray:
    """Which class it is, [N, T]: a column a class, or one for two classes; standardised, by one scale."""
    _, num_outputs = likelihood_and_outputs(Y, settings)
    labels = pseudo_targets(Y, num_outputs, settings).astype(Y.dtype)
    centred = labels - labels.mean(axis=0)
    return centred / max(float(np.sqrt(np.mean(np.square(centred)))), _LEAST_SCALE)


@register("gp", max_layers=1)
def exact_gp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> ExactGP:
    """
    An exact GP with Gaussian noise, cubic in the rows: up to some thousands the measure for others.

    The evidence of few rows leaves the lengthscales of many inputs open, or takes all that is noise for a
    function: both have priors, for standardised rows. The lengthscales' has a median of twice the number of
    inputs; that of Hvarfner et al. 2024 (arXiv:2402.02229) grows as its root and is wider.

    Of classes it is one of the labels, a GP for each class or one for two, as if these were numbers: right in
    their order, and for the estimators to turn into probabilities.
    """
    del seed
    if settings.likelihood in CLASSES:
        Y = _labels(Y, settings)
        settings = replace(settings, likelihood="gaussian")
    model = _exact_gp(X, Y, settings)
    model.kernel.lengthscales.prior = _log_normal(np.log(2.0 * X.shape[1]), 1.0)
    model.likelihood.variance.prior = _log_normal(*_LOG_NOISE)
    return model


@register("rough-gp", max_layers=1, fixed={"kernel": "matern12"})
def rough_gp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> ExactGP:
    """
    An exact GP with a Matern-1/2 kernel: for functions with jumps, and for rows that come again, which may
    have no noise. So it has no priors.
    """
    del seed
    return _exact_gp(X, Y, settings)


@register("constant", max_layers=1)
def constant(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> ExactGP:
    """
    A constant and noise: what any use of the inputs has to be better than.

    All rows are one, of the mean target. The estimators describe the errors by a random forest of the inputs,
    where that predicts them better: for targets that no GP is like.
    """
    del seed
    likelihood = _gaussian(settings, "a constant")
    row = tuple(np.mean(array, axis=0, keepdims=True) for array in (X, Y))
    return ExactGP(row, gpflow.kernels.Constant(), likelihood, np.array([len(X)], X.dtype))
