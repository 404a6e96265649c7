"""Values so far out that they would decide the scaling of all others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Limits", "limits_of"]

_FAR = 100.0  # distances from the median, in units of a normal distribution's standard deviation
_QUARTILES_TO_SD = 1.349  # between the quartiles of a normal distribution


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
    def fit(cls, array: np.ndarray) -> Limits:
        """
        A hundred standard deviations, estimated from the quartiles, on either side of the median. Columns of
        which more than half the values are one have no such limits.

        :param array: [N, D].
        """
        first, median, third = np.quantile(array, [0.25, 0.5, 0.75], axis=0)
        with np.errstate(over="ignore"):
            far = _FAR * (third - first) / _QUARTILES_TO_SD
            far = np.where(far > 0.0, far, np.inf)
            return cls(median - far, median + far)

    def clip(self, array: np.ndarray) -> np.ndarray:
        """The values within the limits [N, D]."""
        return np.clip(array, self.low, self.high)

    def beyond(self, array: np.ndarray) -> np.ndarray:
        """How many values of each column are out of the limits, [D]."""
        return np.sum((array < self.low) | (array > self.high), axis=0)


def limits_of(array: np.ndarray, name: str, columns: Sequence[str] | None = None) -> Limits:
    """
    The limits of the columns, with a warning for each that has values beyond them.

    :param array: [N, D].
    :param name: of the argument that it is.
    :param columns: their names, if they have any.
    """
    limits = Limits.fit(array)
    beyond = limits.beyond(array)
    for column in np.flatnonzero(beyond):
        what = f"column {columns[column]!r}" if columns is not None else f"column {column}"
        warnings.warn(
            f"{name}, {what}: {beyond[column]} of {len(array)} values are more than 100 standard"
            " deviations, by the quartiles, from the median, and are taken for the nearest that is not"
            f" ({limits.low[column]:g} or {limits.high[column]:g}). Correct or transform them.",
            stacklevel=4,
        )
    return limits
