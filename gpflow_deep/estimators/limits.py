"""Values so far out that they would decide the scaling of all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Limits"]

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
