"""Bayesian linear regression as an exact GP with a linear kernel."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from gpflow_deep.presets import Settings, get
from gpflow_deep.presets.exact import ExactGP
from gpflow_deep.presets.registry import LINEAR

from .calibration import Errors, calibrate, left_out
from .rows import Predicted, Rows

__all__ = ["fit_linear"]

_FLOPS_A_SECOND, _MOST_SECONDS, _FEWEST = 2e9, 5.0, 500
_CLEAR = 1.001  # of the floor of the noise
_LOG_RATIOS = (-20.0, 20.0)  # of the noise to the coefficients
_LEAST = 1e-12  # variance of noise


def fit_linear(
    rows: Rows, settings: Settings, seed: int, seconds: float | None = None
) -> tuple[ExactGP, Errors]:
    r"""
    Coefficients with one Gaussian prior, its variance and that of the noise by evidence; then variances that
    are right for rows predicted from the others, and the tails of these errors.

    Of more than D rows the GP is given D, with the same posterior: of inputs
    :math:`\sqrt{W} X = U S V^\top` the rows of :math:`S V^\top`, with the targets
    :math:`U^\top \sqrt{W} Y`.

    :param rows: standardised: there is no constant.
    :param settings: name the floor of the noise.
    :param seed: of the rows where they are very many.
    :param seconds: for it: less time is for fewer rows.
    """
    D = rows.X.shape[1]
    limit = _MOST_SECONDS if seconds is None else min(seconds, _MOST_SECONDS)
    most = max(int(_FLOPS_A_SECOND * limit / D**2), _FEWEST)
    rows = rows.take(np.random.default_rng(seed).permutation(len(rows.X))[:most])
    X, Y, weights = (array.astype(np.float64) for array in rows)
    root = np.sqrt(weights)[:, None]
    U, scales, Vt = np.linalg.svd(root * X, full_matrices=False)
    along = U.T @ (root * Y)
    across = max(float(np.sum(np.square(root * Y)) - np.sum(np.square(along))), 0.0)
    noise, slope = _most_evidence(scales, along, across, float(weights.sum()))
    noise = max(noise, _CLEAR * settings.noise_floor)

    are_many = len(X) > D
    few = Rows(scales[:, None] * Vt, along, np.ones(D)) if are_many else rows
    few = Rows(*(array.astype(rows.X.dtype) for array in few))
    model: ExactGP = get(LINEAR).build(few.X, few.Y, settings, seed)
    model.weights.assign(few.weights)
    model.kernel.variance.assign(slope)
    model.likelihood.variance.assign(noise)
    known = _left_out(Rows(X, Y, weights), few, noise, slope) if are_many else left_out(model)
    return model, calibrate(model, known, seed=seed, forest=False)


def _most_evidence(
    scales: np.ndarray, along: np.ndarray, across: float, observations: float
) -> tuple[float, float]:
    """
    The variances of noise and coefficients with the most evidence: given their ratio the noise is an average.

    :param scales: the singular values of the inputs, [K].
    :param along: the targets along the singular vectors, [K, P].
    :param across: the sum of squares of what is left of the targets.
    :param observations: how many there are of each of the P columns.
    """
    squares, P = np.sum(np.square(along), axis=1), along.shape[1]

    def noise(log_ratio: float) -> tuple[float, np.ndarray]:
        shrunk = 1.0 + np.square(scales) * np.exp(-log_ratio)
        variance = (across + np.sum(squares / shrunk)) / (observations * P)
        return max(float(variance), _LEAST), shrunk

    def loss(log_ratio: float) -> float:
        variance, shrunk = noise(log_ratio)
        return float(P * (observations * np.log(variance) + np.sum(np.log(shrunk))))

    found = minimize_scalar(loss, bounds=_LOG_RATIOS, method="bounded")
    variance = noise(found.x)[0]
    return variance, variance * float(np.exp(-found.x))


def _left_out(rows: Rows, few: Rows, noise: float, slope: float) -> Predicted:
    """
    Each observation predicted from all others, whose precision lacks its own share.

    :param few: with the same posterior.
    """
    precision = few.X.T @ few.X / noise + np.eye(few.X.shape[1]) / slope
    means = rows.X @ np.linalg.solve(precision, few.X.T @ few.Y / noise)
    variances = np.sum(rows.X * np.linalg.solve(precision, rows.X.T).T, axis=1, keepdims=True)
    rest = np.maximum(1.0 - variances / noise, np.finfo(np.float64).eps)
    residuals = (rows.Y - means) / rest
    means = rows.Y - residuals
    return Predicted(rows.X, means, noise + variances / rest, residuals, rows.weights, means)
