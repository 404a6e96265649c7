"""What the errors of an exact GP are like, by each row predicted from the others."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple, Protocol

import numpy as np

from gpflow_deep import metrics
from gpflow_deep.presets.exact import ExactGP

from .error_forest import ErrorForest
from .rows import Mixture, Predicted, Rows, mean_and_error
from .tails import Tails
from .trees import NoTimeError, deadline_in

__all__ = ["Errors", "calibrate", "calibrated_log_density", "left_out", "predicted"]

_FEWEST_ROWS = 100  # that a forest is grown on
_TRIAL_ROWS = 3000  # by which its kind is chosen
_LEAF, _LARGER_LEAF = 3, 10  # least rows of a leaf
_PARTS = 5  # of a GP's own rows, each predicted from the others
_ERRORS_OF_PREDICTIONS = 2.0  # standard ones, that they have to gain as inputs
_CONSTANT = 1e-6  # what predictions that are all the same may differ by


class _Kind(NamedTuple):
    """Of a forest: what its inputs are, and the least rows of a leaf."""

    predicted: bool
    leaf: int


class _Tried(NamedTuple):
    gain: float  # in log density, on average
    error: float  # of that
    kind: _Kind
    forest: ErrorForest
    gains: np.ndarray  # of each row, [N]; NaN where no tree is there to tell


class Errors(Protocol):
    """What is made of a GP's Gaussian predictions of observations: `Tails` or `ErrorForest`."""

    def mixture(self, X: np.ndarray, means: np.ndarray, variances: np.ndarray) -> Mixture:
        """The distribution at each row."""

    def draw(
        self,
        X: np.ndarray,
        means: np.ndarray,
        variances: np.ndarray,
        Y: np.ndarray,
        rng: np.random.RandomState,
    ) -> np.ndarray:
        """Draws, from those of the predictions."""

    def moments(
        self, X: np.ndarray, means: np.ndarray, covariance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance over the rows, from those of the predictions."""


def left_out(model: ExactGP) -> Predicted:
    """
    A GP's own rows, each observation predicted from all others: where a row is several, those at the same
    place and of the same target among them.
    """
    num_rows = model.inputs.shape[0]
    part = np.random.default_rng(0).permutation(num_rows) % min(_PARTS, num_rows)
    left = (np.asarray(array, np.float64) for array in model.leave_parts_out(part))
    residuals, variances, apart = left
    Y, weights = (np.asarray(v, np.float64) for v in (model.targets, model.weights))
    noise = float(model.likelihood.variance.numpy())
    of_function = np.maximum(variances - noise / weights[:, None], 0.0)
    # What w - 1 observations leave of the variance and of the residual that there are without any.
    share = 1.0 / (1.0 + of_function * np.maximum(weights - 1.0, 0.0)[:, None] / noise)
    residuals = share * residuals
    X = np.asarray(model.inputs, np.float64)
    variances = share * of_function + noise
    return Predicted(X, Y - residuals, variances, residuals, weights, Y - apart)


def predicted(model: ExactGP, rows: Rows) -> Predicted:
    """Other rows."""
    means, variances = (np.asarray(v, np.float64) for v in model.posterior().predict_y(rows.X))
    weights = rows.weights.astype(np.float64)
    return Predicted(rows.X, means, variances[:, :1], rows.Y - means, weights, means)


def calibrated_log_density(known: Predicted) -> float:
    """The average of the targets under predictions with the factor and the tails that are best for them."""
    factor, tails = Tails.of(np.square(known.residuals) / known.variances, known.weights)
    variances = np.broadcast_to(factor * known.variances, known.residuals.shape)
    mixture = tails.mixture(known.X, 0.0 * known.residuals, variances)
    return float(np.average(metrics.log_density(known.residuals, *mixture), weights=known.weights))


def calibrate(
    model: ExactGP,
    *rows: Predicted,
    seed: int,
    forest: bool = True,
    seconds: float | None = None,
) -> Tails | ErrorForest:
    """
    The evidence of some rows makes variances that are too small for the others, and errors have heavier tails
    than a Gaussian's, or are of another size and shape here than there. All variances get the factor that is
    best for rows predicted from the others. Then a forest describes the errors by the inputs, or by these
    and the predictions, where rows that trees were not grown on are more likely so than by the same tails
    everywhere, beyond what may be chance. The predictions for new rows are others than those it was grown
    beside: as inputs they have to gain two standard errors.

    :param model: whose variances are changed.
    :param rows: those to go by.
    :param seed: of the forest's draws.
    :param forest: whether there may be one.
    :param seconds: for forests: one that would take longer is not tried.
    """
    deadline = deadline_in(seconds)
    known = Predicted(*map(np.concatenate, zip(*rows, strict=True)))
    squares = np.square(known.residuals) / known.variances
    factor, tails = Tails.of(squares, known.weights)
    known = known._replace(variances=_scale(model, factor) * known.variances)
    if not forest or len(squares) < _FEWEST_ROWS:
        return tails
    known = known.one_by_one()
    errors = known.residuals / np.sqrt(known.variances)
    usual = metrics.log_density(errors, *tails.mixture(known.X, 0.0 * errors, 1.0 + 0.0 * errors))

    order = np.random.default_rng(seed).permutation(len(errors))
    some = order[:_TRIAL_ROWS]

    def grow(kind: _Kind, rows: np.ndarray) -> _Tried:
        forest, densities = ErrorForest.grow(
            known.take(rows), **kind._asdict(), seed=seed, deadline=deadline
        )
        gains = densities - usual[rows]
        return _Tried(*mean_and_error(gains, known.weights[rows]), kind, forest, gains)

    tried: list[_Tried] = []
    with suppress(NoTimeError):
        tried.append(grow(_Kind(False, _LEAF), some))
        if np.ptp(known.means) > _CONSTANT:
            beside = grow(_Kind(True, _LEAF), some)
            gain, error = mean_and_error(beside.gains - tried[0].gains, known.weights[some])
            if gain > _ERRORS_OF_PREDICTIONS * error:
                tried.append(beside)
        tried.append(grow(max(tried).kind._replace(leaf=_LARGER_LEAF), some))
        if len(some) < len(order):
            tried = [grow(max(tried).kind, order)]
    if not tried:
        return tails
    best = max(tried)
    return best.forest if best.gain > best.error else tails


def _scale(model: ExactGP, factor: float) -> float:
    """Multiply all variances: else the mean would change. The noise has a floor: the factor taken."""
    noise = model.likelihood.variance
    factor = max(
        factor, 1.001 * float(model.likelihood.variance_lower_bound) / float(noise.numpy())
    )
    for variance in (model.kernel.variance, noise):
        variance.assign(factor * variance)
    return factor
