"""
Scores of probabilistic predictions that are weighted mixtures of Gaussians.

Every model of this package predicts such a mixture, so each score is written once, for the triple
that `predict_y_mixture` returns::

    crps(Y, *model.predict_y_mixture(Xnew)).mean()

All functions take and return numpy arrays (TensorFlow tensors are converted) and compute in
float64. Mixture arguments are `means` [S, N, P], `variances` [S, N, P] (not negative) and
`log_weights` [S] (normalised: the weights sum to one, up to rounding). Values that are not finite,
negative variances and weights that do not sum to one raise a ValueError that names the argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from check_shapes import check_shapes
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri

from .arrays import finite_array, probability, probability_array, real_array

__all__ = [
    "calibration_curve",
    "coverage",
    "crps",
    "log_density",
    "mixture_moments",
    "negative_log_likelihood",
    "pit",
    "quantile",
    "rmse",
]

_SQRT_2PI = math.sqrt(2.0 * math.pi)

#: Elements that a temporary of the CRPS may hold (32 MB in float64).
_CHUNK_ELEMENTS = 4_000_000

#: Bisection steps of `quantile`: from a bracket of any width down to float64 resolution.
_BISECTIONS = 100
_TOLERANCE = (
    1e-12  # of a quantile: the last step of Newton's method, whose error is the square of it
)


@check_shapes("Y: [N, P]", "mean: [N, P]", "return: []")
def rmse(Y: Any, mean: Any) -> np.ndarray:
    """
    Root mean squared error, over all points and outputs.

    >>> float(gd.metrics.rmse([[0.0], [2.0]], [[1.0], [1.0]]))
    1.0

    :param Y: targets.
    :param mean: predicted means.
    """
    Y = finite_array(Y, "Y")
    mean = finite_array(mean, "mean")
    return np.asarray(np.sqrt(np.mean((Y - mean) ** 2)))


@check_shapes(
    "means: [S, N, P]",
    "variances: [S, N, P]",
    "log_weights: [S]",
    "return[0]: [N, P]",
    "return[1]: [N, P]",
)
def mixture_moments(means: Any, variances: Any, log_weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """
    Mean and variance of the mixture, by output.

    >>> means, variances = np.array([-1.0, 1.0]).reshape(2, 1, 1), np.zeros([2, 1, 1])
    >>> mean, variance = gd.metrics.mixture_moments(means, variances, np.log([0.5, 0.5]))
    >>> mean.round(6).item(), variance.round(6).item()
    (0.0, 1.0)

    :param means: means of the components.
    :param variances: variances of the components.
    :param log_weights: logarithms of the components' weights.
    """
    means, variances, log_weights = _mixture(means, variances, log_weights)
    weights = np.exp(log_weights)
    mean = np.einsum("s,snp->np", weights, means)
    # Deviations first: E[f^2] - E[f]^2 loses everything when the mean is large.
    variance = np.einsum("s,snp->np", weights, variances + (means - mean) ** 2)
    return mean, variance


@check_shapes(
    "Y: [N, P]",
    "means: [S, N, P]",
    "variances: [S, N, P]",
    "log_weights: [S]",
    "return: [N]",
)
def log_density(Y: Any, means: Any, variances: Any, log_weights: Any) -> np.ndarray:
    """
    Log density of each target under the mixture, jointly over the outputs.

    log sum_s w_s prod_p N(y_np; m_snp, v_snp): within a component the outputs are independent.

    >>> standard_normal = np.zeros([1, 1, 1]), np.ones([1, 1, 1]), np.zeros(1)
    >>> gd.metrics.log_density([[0.0]], *standard_normal).round(4)
    array([-0.9189])

    :param Y: targets.
    :param means: means of the components.
    :param variances: variances of the components, positive.
    :param log_weights: logarithms of the components' weights.
    """
    Y = finite_array(Y, "Y")
    means, variances, log_weights = _mixture(means, variances, log_weights)
    if np.any(variances == 0.0):
        raise ValueError("variances: a density needs positive variances, got zeros.")
    component = -0.5 * (np.log(2.0 * np.pi * variances) + (Y - means) ** 2 / variances)
    return np.asarray(logsumexp(log_weights[:, None] + component.sum(axis=-1), axis=0))


@check_shapes(
    "Y: [N, P]",
    "means: [S, N, P]",
    "variances: [S, N, P]",
    "log_weights: [S]",
    "return: []",
)
def negative_log_likelihood(Y: Any, means: Any, variances: Any, log_weights: Any) -> np.ndarray:
    """
    Mean negative log density over the points: minus the papers' marginal test log-likelihood.

    >>> standard_normal = np.zeros([1, 2, 1]), np.ones([1, 2, 1]), np.zeros(1)
    >>> round(float(gd.metrics.negative_log_likelihood([[0.0], [1.0]], *standard_normal)), 4)
    1.1689

    :param Y: targets.
    :param means: means of the components.
    :param variances: variances of the components, positive.
    :param log_weights: logarithms of the components' weights.
    """
    return np.asarray(-np.mean(log_density(Y, means, variances, log_weights)))


@check_shapes(
    "Y: [N, P]",
    "means: [S, N, P]",
    "variances: [S, N, P]",
    "log_weights: [S]",
    "return: [N, P]",
)
def crps(Y: Any, means: Any, variances: Any, log_weights: Any) -> np.ndarray:
    """
    Continuous ranked probability score of each target, in closed form; lower is better.

    With A(m, v) = E|N(m, v)| = 2 sqrt(v) phi(m / sqrt(v)) + m (2 Phi(m / sqrt(v)) - 1), the
    score is sum_i w_i A(y - m_i, v_i) - 1/2 sum_ij w_i w_j A(m_i - m_j, v_i + v_j):
    E. P. Grimit, T. Gneiting, V. J. Berrocal and N. A. Johnson, *The continuous ranked probability
    score for circular variables and its application to mesoscale forecast ensemble verification*,
    Quarterly Journal of the Royal Meteorological Society 132 (2006).

    Costs S^2 / 2 evaluations of A a target. Works through the points in pieces, so that memory
    stays bounded whatever N is.

    >>> standard_normal = np.zeros([1, 1, 1]), np.ones([1, 1, 1]), np.zeros(1)
    >>> gd.metrics.crps([[0.0]], *standard_normal).round(4)
    array([[0.2337]])

    :param Y: targets.
    :param means: means of the components.
    :param variances: variances of the components; zero is a point mass.
    :param log_weights: logarithms of the components' weights.
    """
    Y = finite_array(Y, "Y")
    means, variances, log_weights = _mixture(means, variances, log_weights)
    weights = np.exp(log_weights)
    num_points = Y.size
    Y_flat = Y.reshape(num_points)
    means = means.reshape(-1, num_points)
    variances = variances.reshape(-1, num_points)

    score = np.empty(num_points)
    # A(m, v) is even in m: pairs above the diagonal count twice, and each is weighted 1/2.
    first, second = np.triu_indices(len(weights), k=1)
    pair_weights = weights[first] * weights[second]
    step = max(1, _CHUNK_ELEMENTS // max(1, len(pair_weights)))
    for start in range(0, num_points, step):
        here = slice(start, start + step)
        m, v = means[:, here], variances[:, here]
        error = weights @ _expected_abs(Y_flat[here] - m, v)
        # The diagonal pairs: A(0, 2 v) = 2 sqrt(v / pi).
        same = (weights**2) @ np.sqrt(v / math.pi)
        others = pair_weights @ _expected_abs(m[first] - m[second], v[first] + v[second])
        score[here] = error - same - others
    # The score is never negative; the difference of two sums can be, by rounding.
    return np.maximum(score, 0.0).reshape(Y.shape)


@check_shapes(
    "Y: [N, P]",
    "means: [S, N, P]",
    "variances: [S, N, P]",
    "log_weights: [S]",
    "return: [N, P]",
)
def pit(Y: Any, means: Any, variances: Any, log_weights: Any) -> np.ndarray:
    """
    Probability integral transform: the mixture's distribution function at each target.

    Uniform on [0, 1] when the predictions are calibrated.

    >>> standard_normal = np.zeros([1, 1, 1]), np.ones([1, 1, 1]), np.zeros(1)
    >>> gd.metrics.pit([[0.0]], *standard_normal)
    array([[0.5]])

    :param Y: targets.
    :param means: means of the components.
    :param variances: variances of the components; zero is a point mass.
    :param log_weights: logarithms of the components' weights.
    """
    Y = finite_array(Y, "Y")
    means, variances, log_weights = _mixture(means, variances, log_weights)
    cdf = ndtr(_standardise(Y - means, np.sqrt(variances)))
    # Weights that sum to 1 + 1e-16 must not give a probability above one.
    return np.minimum(np.einsum("s,snp->np", np.exp(log_weights), cdf), 1.0)


@check_shapes(
    "Y: [N, P]",
    "means: [S, N, P]",
    "variances: [S, N, P]",
    "log_weights: [S]",
    "return: []",
)
def coverage(
    Y: Any, means: Any, variances: Any, log_weights: Any, level: float = 0.95
) -> np.ndarray:
    """
    Share of the targets inside the mixture's central interval of the given probability.

    Exact: a target is inside if its distribution function lies between the two tail probabilities,
    so neither samples nor the interval's ends are needed. A point mass on a target covers it.

    >>> standard_normal = np.zeros([1, 2, 1]), np.ones([1, 2, 1]), np.zeros(1)
    >>> float(gd.metrics.coverage([[0.0], [3.0]], *standard_normal, level=0.95))
    0.5

    :param Y: targets.
    :param means: means of the components.
    :param variances: variances of the components; zero is a point mass.
    :param log_weights: logarithms of the components' weights.
    :param level: probability of the interval, in (0, 1).
    """
    levels = [probability(level, "level")]
    return calibration_curve(Y, means, variances, log_weights, levels)[1][0]


@check_shapes(
    "Y: [N, P]",
    "means: [S, N, P]",
    "variances: [S, N, P]",
    "log_weights: [S]",
    "return[0]: [Q]",
    "return[1]: [Q]",
)
def calibration_curve(
    Y: Any,
    means: Any,
    variances: Any,
    log_weights: Any,
    levels: Sequence[float] | np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """
    Nominal probabilities of central intervals, and the share of targets that each contains.

    >>> standard_normal = np.zeros([1, 2, 1]), np.ones([1, 2, 1]), np.zeros(1)
    >>> nominal, observed = gd.metrics.calibration_curve(
    ...     [[0.0], [1.0]], *standard_normal, levels=[0.5, 0.95]
    ... )
    >>> observed
    array([0.5, 1. ])

    :param Y: targets.
    :param means: means of the components.
    :param variances: variances of the components; zero is a point mass.
    :param log_weights: logarithms of the components' weights.
    :param levels: nominal probabilities in (0, 1); 0.05, 0.10, ..., 0.95 if not given.
    """
    nominal = probability_array(np.arange(1, 20) / 20.0 if levels is None else levels, "levels")
    # A central interval holds y where neither of P[Y <= y] and P[Y >= y], which may share a point mass at y,
    # is less than the probability of a tail.
    below = pit(Y, means, variances, log_weights)
    above = pit(np.negative(Y), np.negative(means), variances, log_weights)
    needed = 1.0 - 2.0 * np.minimum(below, above).ravel()
    return nominal, np.mean(needed[None, :] <= nominal[:, None], axis=1)


@check_shapes(
    "means: [S, N, P]",
    "variances: [S, N, P]",
    "log_weights: [S]",
    "return: [Q, N, P]",
)
def quantile(
    levels: Sequence[float] | np.ndarray, means: Any, variances: Any, log_weights: Any
) -> np.ndarray:
    """
    Quantiles of the mixture, by output.

    >>> standard_normal = np.zeros([1, 1, 1]), np.ones([1, 1, 1]), np.zeros(1)
    >>> gd.metrics.quantile([0.025, 0.975], *standard_normal).round(2).ravel()
    array([-1.96,  1.96])

    :param levels: Q probabilities in (0, 1).
    :param means: means of the components.
    :param variances: variances of the components; zero is a point mass.
    :param log_weights: logarithms of the components' weights.
    """
    probabilities = probability_array(levels, "levels")
    means, variances, log_weights = _mixture(means, variances, log_weights)
    # Components of no weight would only widen the bracket, beyond what bisection can narrow.
    means, variances, log_weights = (
        array[log_weights > -np.inf] for array in (means, variances, log_weights)
    )
    shape = means.shape[1:]
    means, scales = (array.reshape(len(means), -1) for array in (means, np.sqrt(variances)))
    quantiles = [_quantile(float(p), means, scales, log_weights) for p in probabilities]
    return np.reshape(quantiles, (len(probabilities), *shape))


def _quantile(
    probability: float, means: np.ndarray, scales: np.ndarray, log_weights: np.ndarray
) -> np.ndarray:
    """Of K mixtures with S components, [K]: by Newton's method, and bisection where it leaves the bracket."""
    # In the nearer tail and in logarithms, extreme quantiles are as exact as the median.
    sign = 1.0 if probability <= 0.5 else -1.0
    target = math.log(min(probability, 1.0 - probability))
    # The mixture's quantile lies between the smallest and the largest of its components'.
    own = means + ndtri(probability) * scales
    low, high = np.min(own, axis=0), np.max(own, axis=0)
    result = low + 0.5 * (high - low)
    least = np.min(scales, axis=0)
    open_ = np.arange(means.shape[1])
    for _ in range(_BISECTIONS):
        x, m, s = result[open_], means[:, open_], scales[:, open_]
        z = _standardise(x - m, s)
        log_tail = logsumexp(log_weights[:, None] + log_ndtr(sign * z), axis=0)
        below = sign * (log_tail - target) < 0.0
        low[open_], high[open_] = np.where(below, x, low[open_]), np.where(below, high[open_], x)
        with np.errstate(all="ignore"):
            density = (
                np.exp(log_weights) @ np.where(s > 0.0, np.exp(-0.5 * z**2) / s, 0.0) / _SQRT_2PI
            )
            new = x - sign * (log_tail - target) * np.exp(log_tail) / density
        middle = low[open_] + 0.5 * (high[open_] - low[open_])
        new = np.where((low[open_] < new) & (new < high[open_]), new, middle)
        result[open_] = new
        open_ = open_[np.abs(new - x) > _TOLERANCE * (np.abs(new) + least[open_])]
        if not len(open_):
            break
    return result


def _expected_abs(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E|N(mean, variance)|, elementwise."""
    scale = np.sqrt(variance)
    z = _standardise(mean, scale)
    return 2.0 * scale * np.exp(-0.5 * z**2) / _SQRT_2PI + mean * (2.0 * ndtr(z) - 1.0)


def _standardise(difference: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """difference / scale; a point mass (scale 0) counts its own location as below: +inf at zero."""
    point_mass = np.where(difference < 0.0, -np.inf, np.inf)
    safe = np.where(scale > 0.0, scale, 1.0)
    return np.where(scale > 0.0, difference / safe, point_mass)


def _mixture(
    means: Any, variances: Any, log_weights: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    means = finite_array(means, "means")
    variances = finite_array(variances, "variances")
    if np.any(variances < 0.0):
        raise ValueError(f"variances: expected none below 0, got {variances.min():.3g}.")
    log_weights = real_array(log_weights, "log_weights")
    total = float(logsumexp(log_weights))
    if not abs(total) < 1e-4:  # written so that NaN fails too
        raise ValueError(
            "log_weights: expected logarithms of weights that sum to 1, "
            f"got a sum of {np.exp(np.minimum(total, 700.0)):.6g}."
        )
    return means, variances, log_weights - total
