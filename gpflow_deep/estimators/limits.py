"""Values so far out that they would decide the scaling of all others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Limits", "limits_of"]

_FAR = 100.0  # distances from the median, in units of a normal distribution's standard deviation
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
        A hundred standard deviations, estimated from the quartiles, on either side of the median. Columns of
        which more than half the values are one have no such limits.

        :param array: [N, D].
        :param weights: how often each row was observed, above zero, [N]; once by default.
        """
        weights = np.ones(len(array)) if weights is None else weights
        first, median, third = (_quantile(array, weights, level) for level in (0.25, 0.5, 0.75))
        with np.errstate(over="ignore"):
            far = _FAR * (third[1] - first[0]) / _QUARTILES_TO_SD
            far = np.where(far > 0.0, far, np.inf)
            middle = median[0] / 2.0 + median[1] / 2.0
            return cls(middle - far, middle + far)

    def where(self, columns: np.ndarray) -> Limits:
        """These limits for some columns, [D] of booleans, and none for the others."""
        return Limits(np.where(columns, self.low, -np.inf), np.where(columns, self.high, np.inf))

    def clip(self, array: np.ndarray) -> np.ndarray:
        """The values within the limits [N, D]."""
        return np.clip(array, self.low, self.high)

    def beyond(self, array: np.ndarray) -> np.ndarray:
        """Which values are out of the limits, [N, D]."""
        return (array < self.low) | (array > self.high)


def _quantile(
    array: np.ndarray, weights: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """
    Where the columns' distribution functions reach a level, and where they exceed it, each [D]: the same for
    a row of weight two and for the row twice, which interpolation is not.
    """
    order = np.argsort(array, axis=0, kind="stable")
    ordered = np.take_along_axis(array, order, axis=0)
    totals = np.cumsum(weights[order], axis=0)
    below, level = totals[:-1], level * totals[-1]
    reached, exceeded = np.sum(below < level, axis=0), np.sum(below <= level, axis=0)
    columns = np.arange(array.shape[1])
    return ordered[reached, columns], ordered[exceeded, columns]


def limits_of(
    array: np.ndarray,
    name: str,
    columns: Sequence[str] | None = None,
    weights: np.ndarray | None = None,
) -> Limits:
    """
    The limits of the columns in which few values are beyond them: one row, or a fiftieth of the observations.
    More are no slips (of a sensor that is off four times of five, a fifth is far from the rest). With a
    warning for each column that has any.

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
        what = f"column {columns[column]!r}" if columns is not None else f"column {column}"
        taken = "as they are, being too many for slips"
        if few[column]:
            taken = (
                "for the nearest that is not"
                f" ({limits.low[column]:g} or {limits.high[column]:g}). Correct or transform them"
            )
        warnings.warn(
            f"{name}, {what}: {number[column]} of {len(array)} values are more than 100 standard"
            f" deviations, by the quartiles, from the median, and are taken {taken}.",
            stacklevel=5,
        )
    return limits.where(few)
