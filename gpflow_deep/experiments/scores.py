"""Scores as papers give them that do not score in original units."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf

from gpflow_deep import metrics

__all__ = ["published_crps", "standardised_scores"]


def standardised_scores(
    Y: np.ndarray, mixture: tuple[np.ndarray, np.ndarray, np.ndarray], scale: np.ndarray
) -> dict[str, np.floating]:
    """
    Scores of standardised targets, as Meng & Zhang 2024 give them: `standardised_nll`, `standardised_rmse`,
    `standardised_crps`, and `standardised_crps_as_published`, by the paper's own formula.

    :param Y: targets in original units [N, P].
    :param mixture: means [S, N, P], variances [S, N, P] and log weights [S], in original units.
    :param scale: of the targets [P].
    """
    means, variances, log_weights = mixture
    Y, means, variances = Y / scale, means / scale, variances / scale**2
    mean, _ = metrics.mixture_moments(means, variances, log_weights)
    return {
        "standardised_nll": -np.mean(metrics.log_density(Y, means, variances, log_weights)),
        "standardised_rmse": metrics.rmse(Y, mean),
        "standardised_crps": np.mean(metrics.crps(Y, means, variances, log_weights)),
        "standardised_crps_as_published": np.mean(published_crps(Y, means, variances, log_weights)),
    }


def published_crps(
    Y: np.ndarray, means: np.ndarray, variances: np.ndarray, log_weights: np.ndarray
) -> np.ndarray:
    """
    The CRPS as the code behind Table 5 of Meng & Zhang 2024 computes it: **wrong**, 15% too large for a
    calibrated Gaussian, since it takes erf(mu / sigma) for erf(mu / (sigma sqrt 2)). Only for comparisons
    with that table; the right one is :func:`gpflow_deep.metrics.crps`.

    :param Y: targets [N, P].
    :param means: [S, N, P].
    :param variances: [S, N, P].
    :param log_weights: [S].
    :return: [N, P].
    """
    weights = np.exp(log_weights)

    def expected_distance(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        sd = np.sqrt(variance)
        density = math.sqrt(2.0 / math.pi) * sd * np.exp(-0.5 * mean**2 / variance)
        return density + mean * erf(mean / sd)

    score = np.tensordot(weights, expected_distance(Y - means, variances), 1)
    for w, mean, variance in zip(weights, means, variances):
        between = expected_distance(mean - means, variance + variances)
        score -= 0.5 * w * np.tensordot(weights, between, 1)
    return score
