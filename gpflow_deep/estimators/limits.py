"""Values so far out that they would decide the scaling of all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpflow_deep.numerics.warning import warn_caller

__all__ = ["Limits", "called", "limits_of", "warn_of_clipping"]

_FAR = 100.0  # distances from the median, in units of a normal distribution's standard deviation
# By so many powers of e further out than the values before it, on one side, a value stands apart: of a normal
# distribution those so far do by 3.5, of log-normal and other long tails the largest ones seldom do.
_APART = 3.0
_QUARTILES_TO_SD = 1.349  # between the quartiles of a normal distribution
_RARE = 0.02  # of the observations: what more are like is no slip


@dataclass(frozen=True)
class Limits:
    """
    Between which values a column counts as it is; others are taken for the nearest of them.

    One wild cell of 1e12 makes a column's standard deviation so large that all else in it is one point; the
    quartiles do not see it.

    :param low: [D].
    :param high: [D].
    """

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def fit(cls, array: np.ndarray, weights: np.ndarray | None = None) -> Limits:
        """
        A hundred standard deviations, estimated from the quartiles, on either side of the median, or the last
        value there of those that follow on each other, as those of long tails do. Columns of which more than
        half the values are one have no such limits.

        :param array: [N, D].
        :param weights: how often each row was observed, above zero, [N]; once by default.
        """
        weights = np.ones(len(array)) if weights is None else weights
        quartiles = np.array([_quartiles(column, weights) for column in array.T])  # [D, 2, 3]
        with np.errstate(over="ignore", invalid="ignore"):
            far = _FAR * (quartiles[:, 1, 2] - quartiles[:, 0, 0]) / _QUARTILES_TO_SD
            far = np.where(far > 0.0, far, np.inf)
            median = np.sum(quartiles[:, :, 1] / 2.0, axis=1)
            above, below = (
                np.array([_reach(*column) for column in zip(sign * (array - median).T, far)])
                for sign in (1.0, -1.0)
            )
            return cls(median - below, median + above)

    def where(self, columns: np.ndarray) -> Limits:
        """These limits for some columns, [D] of booleans, and none for the others."""
        return Limits(np.where(columns, self.low, -np.inf), np.where(columns, self.high, np.inf))

    def within(self, other: Limits) -> Limits:
        """What is in these limits and in others."""
        return Limits(np.maximum(self.low, other.low), np.minimum(self.high, other.high))

    def clip(self, array: np.ndarray) -> np.ndarray:
        """The values within the limits [N, D]."""
        return np.clip(array, self.low, self.high)

    def beyond(self, array: np.ndarray) -> np.ndarray:
        """Which values are out of the limits, [N, D]."""
        return (array < self.low) | (array > self.high)


def _reach(away: np.ndarray, far: float) -> float:
    """How far out values [N] of one side follow on each other; at least `far`."""
    if not (away > far).any():
        return far
    out = np.sort(away[away > 0.0])
    scale = far / _FAR
    apart = (np.diff(np.log(np.maximum(out, scale)), prepend=np.log(scale)) > _APART) & (out > far)
    follow = out[: np.argmax(apart)] if apart.any() else out
    # Farther by a hair: these distances are rounded.
    return max(far, (1.0 + 1e-9) * float(follow.max(initial=0.0)))


def _quartiles(column: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """
    Where a distribution function of values [N] reaches a quarter, a half and three quarters, and where it
    exceeds them, [2, 3]: the same for a row of weight two and for the row twice, which interpolation is not.
    """
    order = np.argsort(column)
    totals = np.cumsum(weights[order])
    levels = np.array([0.25, 0.5, 0.75]) * totals[-1]
    places = [np.searchsorted(totals, levels, side) for side in ("left", "right")]
    quartiles: np.ndarray = column[order[np.minimum(places, len(column) - 1)]]
    return quartiles


def limits_of(
    array: np.ndarray,
    name: str,
    columns: Sequence[str] | None = None,
    weights: np.ndarray | None = None,
) -> Limits:
    """
    The limits of the columns in which values are beyond them, but few: one row, or a fiftieth of the
    observations. More are no slips (of a sensor that is off four times of five, a fifth is far from the
    rest); and where none are, nothing says that values further out, which a prediction may be asked for, are.
    With a warning for each column that has any.

    :param array: [N, D], no row twice where there are weights.
    :param name: of the argument that it is.
    :param columns: their names, if they have any.
    :param weights: how often each row was observed, above zero, [N]; once by default.
    """
    limits = Limits.fit(array, weights)
    beyond = limits.beyond(array)
    number = np.sum(beyond, axis=0)
    few = (number <= 1) | (np.average(beyond, axis=0, weights=weights) <= _RARE)
    for column in np.flatnonzero(number):
        taken = "as they are, being too many for slips"
        if few[column]:
            taken = (
                "for the nearest that is not"
                f" ({limits.low[column]:g} or {limits.high[column]:g}). Correct or transform them"
            )
        warn_caller(
            f"{name}, {called(column, columns)}: {number[column]} of {len(array)} values are more than 100"
            " standard deviations, by the quartiles, from the median, and apart from the others, and are"
            f" taken {taken}."
        )
    return limits.where(few & (number > 0))


def warn_of_clipping(
    limits: Limits, array: np.ndarray, name: str, columns: Sequence[str] | None = None
) -> None:
    """
    A warning, at the line that called this package, for each column with values that a fit takes for others.

    :param limits: of the fit.
    :param array: [N, D].
    :param name: of the argument that it is.
    :param columns: their names, if they have any.
    """
    number = np.sum(limits.beyond(array), axis=0)
    for column in np.flatnonzero(number):
        warn_caller(
            f"{name}, {called(column, columns)}: {number[column]} of {len(array)} values are too far from"
            " those of the training, and are taken for the nearest within the limits of the fit"
            f" ({limits.low[column]:g} or {limits.high[column]:g})."
        )


def called(column: int, columns: Sequence[str] | None) -> str:
    """A column by its number, or its name if it has one."""
    return f"column {column}" if columns is None else f"column {columns[column]!r}"
