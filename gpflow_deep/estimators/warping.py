"""Targets on a scale on which they are more nearly those of a GP with Gaussian noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss, hermevander
from scipy.special import factorial

from gpflow_deep import metrics
from gpflow_deep.presets import recommended
from gpflow_deep.presets.exact import ExactGP

from .calibration import left_out
from .evidence import condition, fit_exact
from .rows import Mixture, Rows
from .scaling import standardisation

__all__ = ["Warping", "choose_warping", "some_rows", "warpings"]

_CENTRES = (0.0, 0.1, 0.5, 0.9, 1.0)  # quantiles of the targets
_STEEPNESS = (0.3, 1.0, 3.0, 10.0, 30.0)  # standard deviations of the targets, in widths
# Where such a share of the targets is nearer than the least width, narrower ones follow, until few are.
_MANY, _FEW, _NARROWER = 1 / 3, 0.05, 10.0**-0.5
_ROWS, _FEW_ROWS = 400, 200
_SHORT = 30.0  # seconds that leave time for few rows only
_LEAST_GAIN = 0.15  # nats a row; a tenth of a nat was as often a loss on other rows
_REFITS = 2
# Errors of means, times the unwarped GP's: at jumps 1.8 and more, elsewhere at most 1.4, but for sizes over
# many decades, which gain so much that it does not count.
_MOST_ERROR, _PLAIN_GAIN = 1.7, 3.0
# A standard normal as normals of deviation `_PART` about a grid of `_SPACING`: to 1e-4 of its density.
_SPACING, _PART, _REACH = 0.5, 0.35, 9
_NODES, _DEGREE = 64, 24
_LEAST_DEVIATION = 1e-9  # of the size of targets, of what is beyond the limits


class Warping(NamedTuple):
    r"""
    :math:`w = b \sinh^{-1}((y - a) / b)`: as y near a, as its logarithm far from it, on either side (Johnson
    1949). About the least target it is the logarithm of a shifted target, about the greatest one that of what
    is missing to it, about the median it shortens tails.
    """

    centre: float  # a
    width: float  # b
    low: float  # least and greatest target that is predicted: the range of those known, thrice as wide
    high: float

    def formula(self) -> str:
        """In words of a calculator, but for the factor b."""
        return f"asinh((y - {self.centre:.6g}) / {self.width:.6g})"

    def forward(self, Y: np.ndarray) -> np.ndarray:
        """Targets on the new scale."""
        return self.width * np.arcsinh((Y - self.centre) / self.width)

    def log_slope(self, Y: np.ndarray) -> np.ndarray:
        """The logarithm of dw/dy."""
        away: np.ndarray = (Y - self.centre) / self.width
        return -np.log(np.hypot(1.0, away))

    def inverse(self, W: np.ndarray) -> np.ndarray:
        """Targets on their own scale, no further out than any that are predicted."""
        low, high = self.forward(np.array([self.low, self.high]))
        W = np.clip(W, low, high)
        return self.centre + self.width * np.sinh(W / self.width)

    def joint_moments(
        self, mean: np.ndarray, covariance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        Mean [N] and covariance [N, N] of targets that are jointly normal, with such, on the new scale.

        Between Hermite polynomials of degree n of two normals of correlation r the correlation is r^n, and
        between those of different degrees there is none (Mehler 1866).
        """
        deviations = np.sqrt(np.diag(covariance))
        nodes, weights = hermegauss(_NODES)
        polynomials = hermevander(nodes, _DEGREE) / np.sqrt(factorial(np.arange(_DEGREE + 1)))
        values = self.inverse(mean + nodes[:, None] * deviations)
        coefficients = (weights / weights.sum() * polynomials.T) @ values
        correlation = covariance / (deviations[:, None] * deviations)
        total, power = np.zeros_like(covariance), np.ones_like(covariance)
        for coefficient in coefficients[1:]:
            power *= correlation
            total += power * (coefficient[:, None] * coefficient)
        return coefficients[0], total

    def mixture(self, means: np.ndarray, variances: np.ndarray, log_weights: np.ndarray) -> Mixture:
        """
        A mixture of Gaussians for targets of the new scale, [S, N, 1], as one of K S Gaussians on their own:
        of narrow parts of each component, with the moments that these have there.
        """
        grid = _SPACING * np.arange(-_REACH, _REACH + 1)
        spread = -0.5 * grid**2 / (1.0 - _PART**2)
        log_shares = spread - np.log(np.exp(spread).sum())
        nodes, node_weights = hermegauss(5)
        node_weights = node_weights / node_weights.sum()
        deviations = np.sqrt(variances)
        centres = np.concatenate([means + a * deviations for a in grid])  # [K S, N, 1]
        parts = _PART * np.concatenate([deviations] * len(grid))
        values = [self.inverse(centres + x * parts) for x in nodes]
        mean = sum(w * value for w, value in zip(node_weights, values, strict=True))
        variance = sum(
            w * np.square(value - mean) for w, value in zip(node_weights, values, strict=True)
        )
        least = np.square(_LEAST_DEVIATION * np.hypot(self.width, mean - self.centre))
        weights = np.concatenate([log_weights + log_share for log_share in log_shares])
        return mean, np.maximum(variance, least), weights


def choose_warping(
    rows: Rows,
    seed: int,
    seconds: float | None = None,
) -> Warping | None:
    """
    The warping under which an exact GP of some rows has the most evidence, the slope's logarithms added, if
    that is clearly more than without one (warped GPs, Snelson et al. 2004): for fixed hyperparameters the
    best of several, then hyperparameters for that one, and so on. It is not taken where means of rows left
    out are far worse by it: to a Gaussian a jump is as unlikely as a wild error, but inputs foretell it.

    :param rows: with one column of targets, in the units of the data.
    :param seed: of the draw of rows.
    :param seconds: that the fit may take, of which this is to take a small part.
    """
    some = some_rows(rows, seed, seconds)
    centre, scale = standardisation(some.X, some.weights)
    some = some._replace(X=(some.X - centre) / scale)
    limits = 2.0 * rows.Y.min() - rows.Y.max(), 2.0 * rows.Y.max() - rows.Y.min()
    candidates: list[Warping | None] = [None]
    candidates += warpings(some.Y, rows.rounding_variance(), *map(float, limits))
    if len(candidates) == 1:
        return None
    model = unwarped = _fit(some, None, seed)
    scores = _evidence(model, some, candidates)
    plain = scores[0]
    best = int(np.argmax(scores))
    gain = scores[best] - plain
    for _ in range(_REFITS):
        if candidates[best] is None or gain < _LEAST_GAIN / 2:
            return None
        model = _fit(some, candidates[best], seed)
        scores = _evidence(model, some, candidates)
        before, best = best, int(np.argmax(scores))
        gain = scores[best] - plain
        if best == before:
            break
    chosen = candidates[best]
    if chosen is None or gain < _LEAST_GAIN:
        return None
    if gain < _PLAIN_GAIN and _error(model, some, chosen) > _MOST_ERROR * _error(unwarped, some):
        return None
    return chosen


def warpings(
    Y: np.ndarray, rounding_variance: float = 0.0, low: float = -np.inf, high: float = np.inf
) -> list[Warping]:
    """
    Those that are worth a try, for targets or an input: centres among the values, and widths. Of rounded
    targets none so narrow that a single value stands apart from its neighbours.
    """
    centres = sorted(set(np.quantile(Y, _CENTRES).tolist()))
    return [
        Warping(a, width, low, high)
        for a in centres
        for width in _widths(Y, a)
        if width**2 > 12.0 * rounding_variance
    ]


def _widths(Y: np.ndarray, centre: float) -> list[float]:
    """
    The standard deviation of the targets over some numbers. Of sizes over more than three decades the largest
    alone decide it: where a third of the targets are nearer to the centre than the least width, narrower ones
    follow until no more than a twentieth are, so that of nearly all targets the logarithm is taken: from the
    least one, or of negative ones from the greatest, or of both signs from one in the middle. None follow
    where a twentieth are the centre itself, such as many zeros: the narrower a spike there, the more evidence
    it has.
    """
    widths = [float(Y.std()) / c for c in _STEEPNESS]
    few, many = np.quantile(np.abs(Y - centre), (_FEW, _MANY)).tolist()
    if 0.0 < few and many < widths[-1]:
        while few < widths[-1]:
            widths.append(_NARROWER * widths[-1])
    return widths


def some_rows(rows: Rows, seed: int, seconds: float | None = None, short: float = _SHORT) -> Rows:
    """Those that such a choice is made by, drawn at random: fewer where a fit may take few seconds."""
    most = _ROWS if seconds is None or seconds > short else _FEW_ROWS
    return rows.take(np.random.default_rng(seed).permutation(len(rows.X))[:most])


def _fit(rows: Rows, warping: Warping | None, seed: int) -> ExactGP:
    """An exact GP of standardised warped targets. By iterations: a fit taken up again must find the same."""
    W, _ = _standardised(rows, warping)
    settings = replace(recommended("gp", *rows.X.shape), kernel="matern52")
    rows = rows._replace(Y=W)
    model, settings, _ = fit_exact("gp", rows, settings, seed, forest=False)
    return condition("gp", model, rows, settings, seed)  # which has the rows in their order


def _evidence(model: ExactGP, rows: Rows, warpings: Sequence[Warping | None]) -> np.ndarray:
    """
    The log evidence of the rows' targets, an observation, under each warping, with the variance that is best
    for them.
    """
    standardised = [_standardised(rows, warping) for warping in warpings]
    residuals, log_determinant = model.decorrelate(np.hstack([W for W, _ in standardised]))
    scales = np.array([scale for _, scale in standardised])
    slopes = [0.0 if w is None else rows.weights @ w.log_slope(rows.Y[:, 0]) for w in warpings]
    number = rows.weights.sum()
    variances = np.square(scales) * np.sum(np.square(residuals), axis=0) / number
    evidence: np.ndarray = -0.5 * np.log(variances) + (np.array(slopes) - log_determinant) / number
    return evidence


def _error(model: ExactGP, rows: Rows, warping: Warping | None = None) -> float:
    """The root mean square error of the means of rows left out, on the targets' own scale."""
    _, scale = _standardised(rows, warping)
    left = left_out(model)
    errors = scale * left.residuals
    if warping is not None:
        means = warping.forward(rows.Y) - errors
        mixture = warping.mixture(means[None], scale**2 * left.variances[None], np.zeros(1))
        errors = rows.Y - metrics.mixture_moments(*mixture)[0]
    return float(np.sqrt(np.average(np.square(errors[:, 0]), weights=rows.weights)))


def _standardised(rows: Rows, warping: Warping | None) -> tuple[np.ndarray, float]:
    W = rows.Y if warping is None else warping.forward(rows.Y)
    mean, scale = standardisation(W, rows.weights)
    return (W - mean) / scale, float(scale[0])
