"""Regression with deep GPs, as scikit-learn has it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state

from gpflow_deep import metrics
from gpflow_deep.metrics.arrays import finite_array, probability_array
from gpflow_deep.validation import check_positive_integer

from .base import DeepGPEstimator
from .data import check_unmasked, checked_data, checked_weights
from .fitted import FittedModel
from .rows import Mixture, Rows
from .selection import Budget
from .tails import Tails
from .warping import Warping, choose_warping

__all__ = ["DeepGPRegressor"]

_ROWS = 1000  # whose components are there at a time
_TINY = np.finfo(np.float64).tiny
_SEEDED = threading.Lock()  # threads share TensorFlow's generator: one seeds it and draws at a time


class DeepGPRegressor(RegressorMixin, DeepGPEstimator):
    """
    A Gaussian process regressor, deep where that pays: scaling, choice of the model, training and predictive
    distributions in the units of the data.

    With ``model="auto"`` three exact GPs (of at most 5000 rows, drawn at random where there are more), a
    smooth one, a rough one and a constant, are fitted and a Bayesian linear regression, then a deep sigma
    point process with the time that is left, and mixed by their log densities on held-out rows (stacking, of
    few rows nearer to equal weights). Of fewer than thirty rows an input an exact GP has one lengthscale for
    all inputs where rows left out are more likely so. Where it predicts better, the errors of an exact GP
    follow a random forest of the inputs: their size, their shape, and what the GP misses, such as jumps.
    Where the sigma point process was at its best early, up to three more are fitted from other draws, and
    count as one with it. With fewer than 200 rows none are held out: all but the last and, where there are
    ten seconds, a mean-field deep GP are compared by cross-validation, and with less than two seconds "auto"
    is an exact GP. Below 30 it is sixteen models in about a second, linear ones and exact GPs, of kernels and
    hyperparameters drawn by how probable the rows make them, as the most probable ones alone are sure of
    noise, and a constant.
    Where weights are no counts, or large ones, a mean-field deep GP stands in for the sigma point process.
    Where targets are few numbers that come again, its noise is at least that of rounding to them, and members
    are judged by the probabilities of these, unless they are known. Rows of the same input and target count
    as one of twice the weight; the order of rows does not matter. Several columns of targets have one kernel,
    and of an exact GP one noise variance: where they differ much in smoothness or noise, fit each by itself
    (scikit-learn's ``MultiOutputRegressor``).

    >>> regressor = gd.estimators.DeepGPRegressor(model="gp", steps=5, random_state=0)
    >>> mean, sd = regressor.fit(X, Y[:, 0]).predict(X, return_std=True)
    >>> mean.shape, bool((sd > 0).all())
    ((20,), True)

    :param model: "auto", or a name of `gpflow_deep.presets.names()`.
    :param num_layers: GP layers of deep families; by default two, or as many as the paper whose name the
        model bears has.
    :param num_inducing: inducing points of each layer; by default growing with the rows.
    :param steps: training steps; by default the family's, or as many as the time allows.
    :param time_limit: seconds for the fit, which ends by the clock, save for what it takes to compile the
        first steps and to predict: at the least seven seconds of one core for some hundred rows, nine of
        classes, however few are given. The same seed then gives the same model only where the machine takes
        as long. Without a limit the default takes 20 to 35 seconds of one core for 60 to 400 rows, most of
        it for compiling.
    :param validation_fraction: share of the rows held out (at least 50, at most 2000) to choose by.
    :param float: "float64" or "float32".
    :param random_state: an integer for fits that can be repeated. A fit seeds TensorFlow's generator too.
    :param verbose: 1 for a line a family, 2 for progress bars too.
    :param kernel: "rbf", "matern12", "matern32" or "matern52"; by default the family's.
    :param likelihood: "gaussian", or "student-t" for outliers.
    :param jitter: on the diagonal of covariances; GPflow's default.
    :param settings: others of `gpflow_deep.presets.Settings` by name, in place of those that follow from the
        data and from `steps`.
    :param warm_start: whether a further `fit` starts from the present parameters, in the present scaling
        (exact GPs, which are fitted in seconds, start anew). A fit that fails or is interrupted leaves the
        estimator as it was.
    :param checkpoint_dir: where an interrupted `fit` is taken up by the same call: of the same data and
        `random_state`. A fit that is done leaves nothing there.
    :param warp: with "auto" and one column of targets, whether they may be taken on another scale,
        :math:`\\sinh^{-1}((y - a) / b)`, where the evidence of an exact GP is clearly in favour: prices,
        durations, counts, wild errors. Predictions are of targets in their own units all the same. So may
        skewed inputs, each on its own.

    Attributes: `model_` the GPflow model, on standardised data; `members_`, `weights_` what is mixed;
    `report_` what was tried; `warping_` of the targets, or ``None``; `scaling_`, with its `X_warping` of
    inputs, or ``None``; `input_limits_`, `target_limits_`, `prediction_limits_`; `n_features_in_`,
    `feature_names_in_`.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DeepGPRegressor:
        """
        :param X: inputs [N, D], finite; an array or a table.
        :param y: targets [N] or [N, P].
        :param sample_weight: how many observations each row is, at least 0, [N].
        :raises ValueError: for data or parameters that cannot work.
        """
        with self._all_or_nothing() as before:
            X, y = checked_data(self, X, y, multi_output=True, y_numeric=True, ensure_min_samples=2)
            y = np.asarray(y, np.float64)
            self._flat_target_ = y.ndim == 1
            Y = y[:, None] if self._flat_target_ else y
            weights = checked_weights(sample_weight, X)
            self._look_at(Y if weights is None else Y[weights > 0])
            self._fit(X, Y, weights, Y.shape[1], before)
        return self

    @staticmethod
    def _look_at(Y: np.ndarray) -> None:
        """What a fit of observations [N, P] can say about their noise."""
        if len(Y) < 2:
            raise ValueError(
                "sample_weight: expected at least two rows of weight above zero, got one."
            )
        for column in np.flatnonzero((Y == Y[0]).all(axis=0)):
            warnings.warn(
                f"y, column {column}: expected values that vary, got {Y[0, column]:g} alone: nothing tells"
                " how large their errors are, and predicted deviations are arbitrary.",
                stacklevel=3,
            )

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """
        Mean of new observations [N] or [N, P], in the units of the targets.

        :param X: inputs [N, D].
        :param return_std: also their standard deviation, of the same shape.
        :param return_cov: also their covariance over the rows [N, N] or [N, N, P]: cubic in N.
        :raises ValueError: where both are asked for.
        """
        if return_std and return_cov:
            raise ValueError("return_std, return_cov: expected one of them, got both.")
        inputs = self._inputs(X)
        mean, variance, _ = self._moments_and_quantiles(inputs, np.zeros(0))
        if return_std:
            return self._shaped(mean), self._shaped(np.sqrt(variance))
        if return_cov:
            return self._shaped(mean), self._covariance(inputs, variance)
        return self._shaped(mean)

    def predict_mixture(self, X: Any) -> Mixture:
        """
        The predictive distribution of new observations, a mixture of S Gaussians at each row: what
        `gpflow_deep.metrics` scores. A component's Student-t noise is the same in all outputs: log densities
        of several are those of :meth:`log_density`.

        :return: means [S, N, P], variances [S, N, P], logarithms of weights [S].
        """
        return self._in_units(self._inputs(X))

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] = (0.025, 0.5, 0.975)
    ) -> np.ndarray:
        """
        Quantiles of new observations, [N, Q] or [N, Q, P].

        :param quantiles: Q probabilities in (0, 1).
        """
        levels = probability_array(quantiles, "quantiles")
        _, _, values = self._moments_and_quantiles(self._inputs(X), levels)
        return self._shaped(np.moveaxis(values, 0, 1))

    def predict_summary(
        self, X: Any, quantiles: Sequence[float] = ()
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """
        Means and standard deviations, [N] or [N, P], and quantiles, [N, Q] or [N, Q, P], of new observations:
        members predict once for all of them.

        :param X: inputs [N, D].
        :param quantiles: Q probabilities in (0, 1).
        """
        levels = probability_array(quantiles, "quantiles") if np.size(quantiles) else np.zeros(0)
        mean, variance, values = self._moments_and_quantiles(self._inputs(X), levels)
        shaped = self._shaped(mean), self._shaped(np.sqrt(variance))
        return *shaped, self._shaped(np.moveaxis(values, 0, 1))

    def _moments_and_quantiles(
        self, inputs: np.ndarray, levels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means and variances [N, P], and quantiles [Q, N, P], some rows' components at a time."""
        found = []
        for part in np.array_split(inputs, max(1, -(-len(inputs) // _ROWS))):
            mixture = self.scaling_.mixture(*self._mixture("predict_y_mixture", part))
            values = np.zeros([0, len(part), len(self.scaling_.Y_scale)])
            if len(levels):
                values = metrics.quantile(levels, *mixture)
            if self.warping_ is not None:
                values = self.warping_.inverse(values)
                mixture = self.warping_.mixture(*mixture)
            mean, variance = metrics.mixture_moments(*mixture)
            found.append((mean, variance, values))
        means, variances, quantiles = zip(*found, strict=True)
        return np.concatenate(means), np.concatenate(variances), np.concatenate(quantiles, axis=1)

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """
        Log density of new observations in the units of the targets, [N]; jointly over the outputs.

        :param X: inputs [N, D].
        :param y: targets, [N] or [N, P].
        :raises ValueError: targets of another shape.
        """
        check_unmasked(y, "y")
        inputs, Y = self._inputs(X), finite_array(np.asarray(y, np.float64), "y")
        expected = len(inputs), len(self.scaling_.Y_scale)
        if Y.shape != expected and not (Y.shape == expected[:1] and expected[1] == 1):
            shape = expected[:1] if self._flat_target_ else expected
            raise ValueError(f"y: expected targets of shape {shape}, got {Y.shape}.")
        Y = Y.reshape(expected)
        scaled = self.scaling_.targets(self._warped(Y)).astype(self._fitted_float)
        density = self._member_log_density(inputs, scaled) - np.log(self.scaling_.Y_scale).sum()
        return density if self.warping_ is None else density + self.warping_.log_slope(Y)[:, 0]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """
        Draws of new observations: functions that are coherent over the rows, and noise; cubic in N. Where a
        forest describes the errors, a draw has those of one tree for all rows; densities and quantiles are of
        all trees in fewer parts, with the same mean and variance.

        :param X: inputs [N, D].
        :param n_samples: how many draws.
        :param random_state: the same integer gives the same draws; it seeds TensorFlow's generator too.
        :return: [N, n_samples] or [N, P, n_samples], as scikit-learn's GP has them.
        """
        import tensorflow as tf

        inputs, n_samples = self._inputs(X), check_positive_integer(n_samples, "n_samples")
        rng = check_random_state(random_state)
        seed = int(rng.randint(2**31 - 1))
        counts = rng.multinomial(n_samples, self.weights_)
        draws = []
        with _SEEDED:
            tf.random.set_seed(seed)
            for member, count in zip(self.members_, counts, strict=True):
                if count:
                    F = member.sample_f(inputs, int(count))  # [S, N, P]
                    draws.append(_observed(member, inputs, F, rng))
        Y = self.scaling_.Y_mean + self.scaling_.Y_scale * np.concatenate(draws)
        if self.warping_ is not None:
            Y = self.warping_.inverse(Y)
        Y = np.moveaxis(rng.permutation(Y), 0, -1)  # [N, P, S]
        return Y[:, 0] if self._flat_target_ else Y

    def _likelihood(self) -> str:
        likelihood = self.likelihood or "gaussian"
        if likelihood not in ("gaussian", "student-t"):
            raise ValueError(
                f"likelihood: expected 'gaussian' or 'student-t' for regression, got {likelihood!r}."
            )
        return likelihood

    def _in_units(self, inputs: np.ndarray) -> Mixture:
        mixture = self.scaling_.mixture(*self._mixture("predict_y_mixture", inputs))
        return mixture if self.warping_ is None else self.warping_.mixture(*mixture)

    def _choose_warping(self, train: Rows, budget: Budget) -> Warping | None:
        one_column = train.Y.shape[1] == 1  # components of several have no covariances
        if (
            not (self.warp and one_column and self.model == "auto")
            or self._likelihood() != "gaussian"
        ):
            return None
        warping = self._chosen(choose_warping, train, budget)
        if warping is not None:
            self._tell(f"target: more nearly Gaussian as {warping.formula()}, and learned so.")
        return warping

    def _covariance(self, inputs: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Of observations over the rows; the diagonal is known."""
        moments = [self._joint_moments(member, inputs) for member in self.members_]
        _, total = _joint_moments_of_mixture(self.weights_.tolist(), moments)
        # Variances of parts that are no normals are not those of normals of their moments.
        known = np.diagonal(total, axis1=1, axis2=2)  # [P, N]
        shares = np.sqrt(np.minimum(variance.T / np.maximum(known, _TINY), 1.0))
        total *= shares[:, :, None] * shares[:, None, :]
        total[:, np.arange(len(inputs)), np.arange(len(inputs))] = variance.T
        covariance = np.moveaxis(total, 0, -1)
        return covariance[..., 0] if self._flat_target_ else covariance

    def _joint_moments(
        self, member: FittedModel, inputs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        Mean [N, P] and covariance [P, N, N] in the targets' units; noise may be left out of its diagonal.
        """
        mean, covariance = member.joint_moments(inputs)
        mean = self.scaling_.Y_mean + self.scaling_.Y_scale * mean
        covariance = np.square(self.scaling_.Y_scale)[:, None, None] * covariance
        if self.warping_ is None:
            return mean, covariance
        noise = 0.0
        if member.errors is None:
            noise = (
                float(member.model.likelihood.variance.numpy())
                * float(self.scaling_.Y_scale[0]) ** 2
            )
        covariance = covariance[0] + noise * np.eye(len(inputs))
        factors: tuple[float, ...] = (1.0,)
        weights: tuple[float, ...] = (1.0,)
        if isinstance(member.errors, Tails):
            # Wider and narrower normals are no normal on the targets' scale.
            factors, weights = member.errors.factors, member.errors.weights
        parts = [self.warping_.joint_moments(mean[:, 0], factor * covariance) for factor in factors]
        return _joint_moments_of_mixture(weights, [(m[:, None], c[None]) for m, c in parts])

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """Without the axis of outputs, the last one, where the targets had none."""
        return values[..., 0] if self._flat_target_ else values


def _joint_moments_of_mixture(
    weights: Sequence[float], moments: Sequence[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean [N, P] and covariance over the rows [P, N, N] of a mixture whose components have such."""
    mean = np.average([own for own, _ in moments], axis=0, weights=weights)
    total = np.zeros_like(moments[0][1])
    for weight, (own, covariance) in zip(weights, moments, strict=True):
        away = (own - mean).T
        total += weight * (covariance + away[:, :, None] * away[:, None, :])
    return mean, total


def _observed(
    member: FittedModel, inputs: np.ndarray, F: np.ndarray, rng: np.random.RandomState
) -> np.ndarray:
    """Draws of observations from draws of the functions, both [S, N, P]."""
    likelihood = member.model.likelihood
    if member.settings.likelihood == "student-t":
        return F + likelihood.scale.numpy() * rng.standard_t(likelihood.df, size=F.shape)
    Y = F + np.sqrt(likelihood.variance.numpy()) * rng.standard_normal(F.shape)
    if member.errors is None:
        return Y
    return member.errors.draw(inputs, *member.gaussian(inputs), Y, rng)
