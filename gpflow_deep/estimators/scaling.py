"""Standardisation of inputs and targets, and the way back to original units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .input_warping import InputWarping

__all__ = ["Scaling", "standardisation"]

_LEAST = 1e-140
_ROUNDING = 64.0 * np.finfo(np.float64).eps  # of a constant that was computed, relative


def standardisation(
    array: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """
    Mean and scale [D] of the columns of `array` [N, D], whose rows count as `weights` [N] say.

    The scale is the standard deviation, or 1 for a constant column, which so becomes zero instead
    of NaN.
    """
    # By a power of two, which is exact: squares of values as large as 1e200 overflow, of 1e-200 vanish.
    largest = np.abs(array).max(axis=0, initial=0.0)
    exponent = np.where(largest > 0.0, np.frexp(largest)[1], 0)
    ordinary = np.ldexp(array, -exponent)
    centre = np.average(ordinary, axis=0, weights=weights)
    variance = np.average(np.square(ordinary - centre), axis=0, weights=weights)
    mean, scale = np.ldexp(centre, exponent), np.ldexp(np.sqrt(variance), exponent)
    # A constant such as 0.1 has a standard deviation of rounding errors, not of zero.
    constant = scale <= _ROUNDING * np.maximum(np.abs(mean), np.finfo(np.float64).tiny)
    return mean, np.where(constant, 1.0, scale)


@dataclass(frozen=True)
class Scaling:
    """
    Maps to zero mean and unit variance, as the training points have them, and back.

    :param X_mean: [D].
    :param X_scale: [D].
    :param Y_mean: [P].
    :param Y_scale: [P].
    :param X_warping: of standardised inputs, if any.
    """

    X_mean: np.ndarray
    X_scale: np.ndarray
    Y_mean: np.ndarray
    Y_scale: np.ndarray
    X_warping: InputWarping | None = None

    @classmethod
    def fit(
        cls,
        X: np.ndarray,
        Y: np.ndarray,
        weights: np.ndarray | None = None,
        X_warping: InputWarping | None = None,
    ) -> Scaling:
        """
        From training data only, so that nothing is known of the test points.

        :param X: inputs [N, D].
        :param Y: targets [N, P].
        :param weights: how much each row counts, [N].
        :param X_warping: of these inputs, if any.
        :raises ValueError: where the squares of the targets' scales, which variances are in, are not finite
            or vanish.
        """
        scaling = cls(*standardisation(X, weights), *standardisation(Y, weights), X_warping)
        if not ((scaling.Y_scale > _LEAST) & (scaling.Y_scale < 1.0 / _LEAST)).all():
            raise ValueError(
                f"Y: expected targets with standard deviations between {_LEAST:g} and {1.0 / _LEAST:g}, got"
                f" {', '.join(f'{scale:g}' for scale in scaling.Y_scale)}. Give them in other units."
            )
        return scaling

    def inputs(self, X: np.ndarray) -> np.ndarray:
        """Standardised inputs [N, D], warped if they are to be."""
        standardised = (X - self.X_mean) / self.X_scale
        return standardised if self.X_warping is None else self.X_warping.forward(standardised)

    def targets(self, Y: np.ndarray) -> np.ndarray:
        """Standardised targets [N, P]."""
        return (Y - self.Y_mean) / self.Y_scale

    def mixture(
        self, means: np.ndarray, variances: np.ndarray, log_weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """
        A predictive mixture for standardised targets, in original units.

        Densities under it have the log of the scale subtracted, as they must.

        :param means: [S, N, P].
        :param variances: [S, N, P].
        :param log_weights: [S].
        """
        return (
            self.Y_mean + self.Y_scale * np.asarray(means),
            self.Y_scale**2 * np.asarray(variances),
            np.asarray(log_weights),
        )
