r"""
Expectation propagation by updates of the factors (Bui et al. 2016, Appendices B and C).

One update takes a factor away from the posterior, propagates a point through what is left, the cavity, and
has from the gradients of log Z with respect to the cavity's mean m and covariance V the moments that the
posterior ought to have there,

.. math::
    m' = m + V \nabla_m, \quad V' = V - V (\nabla_m \nabla_m^T - 2 \nabla_V) V,

and so a new factor. EP keeps one factor for each point; stochastic EP keeps their average, tied. Neither
touches the kernels, inducing inputs and noises: alternate with an optimiser of these, which leaves the
factors alone after ``gpflow.set_trainable(model.inducing_posterior, False)``.

All is computed in the coordinates v with u = L_K v, in which the prior is standard normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData, TensorType

from ..likelihoods import log_normaliser
from ..models.fitc_ep import FITCEPDeepGP
from ..numerics.compiled import compiled
from ..posteriors.tied_factor import Weights
from ..validation import check_flag, check_share

__all__ = ["ExpectationPropagation", "StochasticEP"]

_MAX_HALVINGS = 10


class Natural(NamedTuple):
    """Natural parameters of Gaussian factors of a layer's inducing outputs."""

    precision: tf.Tensor  # [..., T, M, M]
    linear: tf.Tensor  # [..., T, M]


class _Moments(NamedTuple):
    mean: tf.Tensor  # [T, M]
    covariance: tf.Tensor  # [T, M, M]
    log_partition: tf.Tensor  # []; phi less the prior's


class _Updates:
    """What both schemes do: cavities, normalisers and new factors."""

    def __init__(self, model: FITCEPDeepGP, damping: float) -> None:
        if not isinstance(model, FITCEPDeepGP):
            raise TypeError(f"model: expected a FITCEPDeepGP, got {type(model).__name__}.")
        if model.alpha != 1.0:
            raise ValueError(f"model: expected one with alpha=1, got alpha={model.alpha:g}.")
        self.model = model
        self.damping = check_share(damping, "damping")

    def _prior_factors(self) -> list[tf.Tensor]:
        factors = []
        for covariance, layer in zip(self.model._prior_covariances(), self.model.layers):
            shape = [layer.num_latent_gps, layer.num_inducing, layer.num_inducing]
            factors.append(tf.linalg.cholesky(tf.broadcast_to(covariance, shape)))
        return factors

    def _log_Z(
        self, X: tf.Tensor, Y: tf.Tensor, cavity: Sequence[_Moments], factors: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """[N]"""
        model = self.model
        weights = []
        for (mean, covariance, _), factor in zip(cavity, factors):
            identity = tf.eye(factor.shape[-1], dtype=factor.dtype)
            inner = tf.linalg.triangular_solve(factor, identity - covariance, adjoint=True)
            inner = tf.linalg.matrix_transpose(inner)
            weights.append(
                Weights(
                    tf.linalg.triangular_solve(factor, mean[..., None], adjoint=True)[..., 0],
                    tf.linalg.triangular_solve(factor, inner, adjoint=True),
                )
            )
        mean, covariance = model._match_moments(X, weights)[-1]
        noise = model._likelihood_noise()
        return log_normaliser(model.likelihood, X, mean, covariance, Y, 1.0, noise)

    def _new_factors(
        self, X: tf.Tensor, Y: tf.Tensor, cavity: Sequence[_Moments], factors: Sequence[tf.Tensor]
    ) -> list[Natural]:
        """For every layer the factors of N points, [N, T, M, M] and [N, T, M]."""
        means, covariances = [m.mean for m in cavity], [m.covariance for m in cavity]
        with tf.GradientTape() as tape:
            tape.watch([means, covariances])
            moments = [
                _Moments(m, V, c.log_partition) for m, V, c in zip(means, covariances, cavity)
            ]
            log_Z = self._log_Z(X, Y, moments, factors)
        slopes = tape.jacobian(log_Z, [means, covariances])
        updated = []
        for mean, covariance, d_mean, d_covariance in zip(means, covariances, *slopes):
            d_covariance = 0.5 * (d_covariance + tf.linalg.matrix_transpose(d_covariance))
            d_mean = tf.cast(d_mean, tf.float64)
            drop = d_mean[..., :, None] * d_mean[..., None, :] - 2.0 * tf.cast(
                d_covariance, tf.float64
            )
            # (V - V X V)^-1 - V^-1 = (I - X V)^-1 X, which takes no difference of big precisions.
            identity = tf.eye(mean.shape[-1], dtype=mean.dtype)
            matrix = identity - tf.matmul(drop, covariance)
            # Of a cavity that is no Gaussian the drop is NaN, and so is what comes of it, without an error.
            matrix = tf.where(_is_finite(matrix, axis=[-2, -1])[..., None, None], matrix, identity)
            precision = tf.linalg.solve(matrix, drop)
            precision = 0.5 * (precision + tf.linalg.matrix_transpose(precision))
            moved = mean + tf.linalg.matvec(covariance, d_mean)
            updated.append(Natural(precision, d_mean + tf.linalg.matvec(precision, moved)))
        return updated


class StochasticEP(_Updates):
    """
    Stochastic EP (Appendix C): the tied factor moves towards the average of the batch's new factors.

    >>> layers = gd.layers.build_separate_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> model = gd.models.FITCEPDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_data=len(X))
    >>> shares = gd.optimizers.StochasticEP(model, damping=0.1).step((X, Y))
    >>> [share.shape for share in shares]
    [(2,), (1,)]

    :param model: a deep GP with ``alpha=1``; its ``num_data`` says how many factors there are.
    :param damping: the share beta of the new factor in ``g^(1 - beta) g_new^beta``.
    :raises ValueError: where the power is another, or the damping is not in (0, 1].
    """

    def __init__(self, model: FITCEPDeepGP, damping: float = 0.1) -> None:
        super().__init__(model, damping)
        self._compiled = compiled(self._targets, reduce_retracing=True)

    def step(self, data: RegressionData) -> list[np.ndarray]:
        """
        One update of all GPs' factors by a batch.

        Where a GP's would leave the positive definite cone, its share is halved until it does not, or the
        update is rejected: far from an optimum the points may contradict each other so that a factor would
        need a negative precision. A few steps of Adam help.

        :param data: inputs [N, D] and targets [N, P].
        :return: for every layer the share that each GP has taken [T]; 0 for a rejected update.
        """
        new = self._new(data)
        shares = []
        for layer, (old, target) in enumerate(zip(self._old(), new)):
            share = np.full(len(old.linear), self.damping)
            for _ in range(_MAX_HALVINGS):
                blend = _blend(old, target, share[:, None, None])
                inside = np.array([_is_positive(x) for x in blend.precision.numpy()])
                if inside.all():
                    break
                share = np.where(inside, share, 0.5 * share)
            share = np.where(inside, share, 0.0)
            blend = _blend(old, target, share[:, None, None])
            # What is rejected may not be a number, and no share of it is zero.
            precision = tf.where(inside[:, None, None], blend.precision, old.precision)
            linear = tf.where(inside[:, None], blend.linear, old.linear)
            self.model.inducing_posterior.assign_natural_parameters(layer, precision, linear)
            shares.append(share)
        return shares

    def propose(self, data: RegressionData) -> list[Natural]:
        """The natural parameters of the N factors together that a full step would lead to, per layer."""
        new = self._new(data)
        return [_blend(old, target, self.damping) for old, target in zip(self._old(), new)]

    def _old(self) -> list[Natural]:
        posterior = self.model.inducing_posterior
        layers = range(len(self.model.layers))
        return [
            Natural(*(tf.cast(x, tf.float64) for x in posterior.natural_parameters(index)))
            for index in layers
        ]

    def _new(self, data: RegressionData) -> list[Natural]:
        X, Y = self.model._check_data(data)
        # A tensor: what is compiled would keep a number.
        num_data = tf.cast(self.model.num_points(X), tf.float64)
        return self._compiled(X, Y, num_data)

    def _targets(self, X: tf.Tensor, Y: tf.Tensor, num_data: tf.Tensor) -> list[Natural]:
        """Per layer the parameters of N factors like the batch's average."""
        factors = self._prior_factors()
        power = 1.0 - 1.0 / num_data
        cavity = []
        for natural, factor in zip(self._old(), factors):
            whitened = _whiten(natural, factor)
            cavity.append(_moments(Natural(power * whitened.precision, power * whitened.linear)))
        return [
            _unwhiten(Natural(*(num_data * tf.reduce_mean(x, axis=0) for x in natural)), factor)
            for natural, factor in zip(self._new_factors(X, Y, cavity, factors), factors)
        ]


class ExpectationPropagation(_Updates):
    """
    EP with a factor for every point and GP (Appendix B), for data that it can keep them for: the factors
    take N T M^2 numbers.

    The model's posterior stands for their product: its predictions are EP's. :meth:`log_evidence` is the
    energy of the factors; the model's own ``energy`` and ``prior_kl`` are those of a tied factor. Where the
    product makes functions less certain than their prior, as of hidden layers it may, no tied factor does:
    what is missing is kept beside it, until it is given other parameters.

    >>> layers = gd.layers.build_separate_layers(X, hidden_dims=(), num_inducing=5)
    >>> model = gd.models.FITCEPDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_data=len(X))
    >>> ep = gd.optimizers.ExpectationPropagation(model, (X, Y))
    >>> rejected = ep.sweep()
    >>> exact = gd.models.collapsed_evidence(layers[0], model.likelihood, (X, Y))
    >>> bool(np.isclose(ep.log_evidence(), exact))  # one sweep is enough for one layer
    True

    :param model: a deep GP with ``alpha=1``.
    :param data: all the inputs [N, D] and targets [N, P].
    :param damping: the share of the new factor in every update.
    :param from_tied_factor: whether each point's factor is an N-th of the model's tied one at the start, as
        after training by the energy, instead of one that says nothing. Of several layers EP seldom converges
        without, nor undamped.
    :raises ValueError: where the power is another, or the damping is not in (0, 1].
    """

    def __init__(
        self,
        model: FITCEPDeepGP,
        data: RegressionData,
        damping: float = 1.0,
        *,
        from_tied_factor: bool = False,
    ) -> None:
        super().__init__(model, damping)
        self.X, self.Y = model._check_data(data)
        N = int(self.X.shape[0])
        check_flag(from_tied_factor, "from_tied_factor")
        self.sites = []
        for index in range(len(model.layers)):
            start = []
            for tied in model.inducing_posterior.natural_parameters(index):
                each = (
                    np.asarray(tied, np.float64) / N if from_tied_factor else np.zeros(tied.shape)
                )
                start.append(tf.Variable(np.broadcast_to(each, [N, *each.shape]), trainable=False))
            self.sites.append(Natural(*start))
        self._compiled = compiled(self._sweep)
        self._compiled_evidence = compiled(self._log_evidence)

    def sweep(self) -> int:
        """
        Update every factor once, in the order of the data.

        :return: how many updates were rejected, because the posterior or a cavity would not have been
            positive definite.
        """
        rejected, whole, factors = self._compiled()
        for layer, (natural, factor) in enumerate(zip(whole, factors)):
            self.model.inducing_posterior.assign_product(layer, factor, *natural)
        return int(rejected)

    def log_evidence(self) -> tf.Tensor:
        """
        The EP energy, an approximation of the log evidence; differentiable in the hyperparameters. NaN where
        a cavity is not positive definite.
        """
        return self._compiled_evidence()

    def _log_evidence(self) -> tf.Tensor:
        factors = self._prior_factors()
        whole = self._whole(factors)
        total = tf.add_n([m.log_partition for m in map(_moments, whole)])

        def of_point(n: tf.Tensor) -> tf.Tensor:
            cavity = [_moments(natural) for natural in self._cavity(whole, factors, n)]
            log_Z = self._log_Z(self.X[n][None], self.Y[n][None], cavity, factors)[0]
            return tf.cast(log_Z, tf.float64) + tf.add_n([m.log_partition for m in cavity]) - total

        points = tf.range(self.X.shape[0])
        return total + tf.reduce_sum(tf.map_fn(of_point, points, fn_output_signature=tf.float64))

    def _whole(self, factors: Sequence[tf.Tensor]) -> list[Natural]:
        return [
            _whiten(Natural(*(tf.reduce_sum(x, axis=0) for x in site)), factor)
            for site, factor in zip(self.sites, factors)
        ]

    def _cavity(
        self, whole: Sequence[Natural], factors: Sequence[tf.Tensor], n: tf.Tensor
    ) -> list[Natural]:
        cavity = []
        for natural, site, factor in zip(whole, self.sites, factors):
            own = _whiten(Natural(site.precision[n], site.linear[n]), factor)
            cavity.append(Natural(natural.precision - own.precision, natural.linear - own.linear))
        return cavity

    def _sweep(self) -> tuple[tf.Tensor, list[Natural], list[tf.Tensor]]:
        factors = self._prior_factors()

        def body(n: tf.Tensor, rejected: tf.Tensor, whole: list[Natural]) -> tuple:
            cavity = self._cavity(whole, factors, n)
            moments = [_moments(natural) for natural in cavity]
            new = [
                Natural(*(x[0] for x in natural))
                for natural in self._new_factors(self.X[n][None], self.Y[n][None], moments, factors)
            ]
            old = [
                Natural(w.precision - c.precision, w.linear - c.linear)
                for w, c in zip(whole, cavity)
            ]
            blended = [_blend(before, after, self.damping) for before, after in zip(old, new)]
            total = [
                Natural(c.precision + b.precision, c.linear + b.linear)
                for c, b in zip(cavity, blended)
            ]
            fine = tf.reduce_all([_is_finite(_moments(natural).log_partition) for natural in total])
            total = tf.cond(fine, lambda: total, lambda: whole)
            for site, natural, factor in zip(self.sites, blended, factors):
                kept = _unwhiten(natural, factor)
                for variable, value in zip(site, kept):
                    value = tf.where(fine, value, variable[n])
                    variable.scatter_nd_update([[n]], value[None])
            return n + 1, rejected + tf.cast(~fine, tf.int32), total

        _, rejected, whole = tf.while_loop(
            lambda n, *_: n < self.X.shape[0],
            body,
            (0, 0, self._whole(factors)),
            parallel_iterations=1,
        )
        return rejected, whole, factors


def _blend(old: Natural, new: Natural, share: TensorType) -> Natural:
    """g^(1 - share) g_new^share; ``share`` is a number or [T, 1, 1]."""
    of_linear = share[..., 0] if isinstance(share, np.ndarray) else share
    return Natural(
        old.precision + share * (new.precision - old.precision),
        old.linear + of_linear * (new.linear - old.linear),
    )


def _is_positive(matrix: np.ndarray) -> bool:
    try:
        return bool(np.isfinite(np.linalg.cholesky(matrix)).all())
    except np.linalg.LinAlgError:
        return False


def _whiten(natural: Natural, factor: tf.Tensor) -> Natural:
    """Parameters of a factor of u as those of a factor of v."""
    precision = tf.matmul(factor, tf.matmul(natural.precision, factor), transpose_a=True)
    return Natural(precision, tf.linalg.matvec(factor, natural.linear, transpose_a=True))


def _unwhiten(natural: Natural, factor: tf.Tensor) -> Natural:
    """Parameters of a factor of v as those of a factor of u."""
    half = tf.linalg.triangular_solve(factor, natural.precision, adjoint=True)
    precision = tf.linalg.triangular_solve(factor, tf.linalg.matrix_transpose(half), adjoint=True)
    linear = tf.linalg.triangular_solve(factor, natural.linear[..., None], adjoint=True)[..., 0]
    return Natural(0.5 * (precision + tf.linalg.matrix_transpose(precision)), linear)


def _moments(natural: Natural) -> _Moments:
    """Of the prior times factors; NaN where that is no Gaussian."""
    identity = tf.eye(natural.precision.shape[-1], dtype=natural.precision.dtype)
    root = tf.linalg.cholesky(identity + natural.precision)
    half = tf.linalg.triangular_solve(root, identity + tf.zeros_like(root))
    covariance = tf.matmul(half, half, transpose_a=True)
    mean = tf.linalg.matvec(covariance, natural.linear)
    log_diagonal = tf.math.log(tf.linalg.diag_part(root))
    log_partition = 0.5 * tf.reduce_sum(natural.linear * mean) - tf.reduce_sum(log_diagonal)
    return _Moments(mean, covariance, log_partition)


def _is_finite(x: tf.Tensor, axis: Sequence[int] | None = None) -> tf.Tensor:
    return tf.reduce_all(tf.math.is_finite(x), axis)
