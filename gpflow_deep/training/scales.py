"""Columns and parameters many orders of magnitude from one: warned of before, named after a failure."""

from __future__ import annotations

__all__ = ["far_columns", "far_parameters", "warn_of_scales"]

import warnings

import gpflow
import numpy as np
from gpflow.utilities import parameter_dict

from .data import Data

_FAR = 1e3  # factor from one at which kernels and noise at their usual starts no longer fit
_FAR_PARAMETER = 1e6  # parameters have reasons of their own to be large or small

#: Likelihoods whose targets are in units that can be chosen: counts, classes and shares are not.
_SCALABLE = (gpflow.likelihoods.Gaussian, gpflow.likelihoods.StudentT)


def warn_of_scales(name: str, data: Data, model: gpflow.models.BayesianModel) -> None:
    """
    Warn, in one message for all, of columns whose size or spread is many orders of magnitude from one.

    Lengthscales, variances and noise start near one: of such data a model learns nothing, or fails.

    :param name: the argument's name in the message.
    :param data: X and Y.
    :param model: of its likelihood it depends whether targets can be scaled.
    """
    found = far_columns(data[0], f"X of {name}")
    if isinstance(getattr(model, "likelihood", None), _SCALABLE):
        found += far_columns(data[1], f"Y of {name}")
    if found:
        warnings.warn(
            f"{'; '.join(found)}: many orders of magnitude from one, where kernels and noise start, "
            "so that training may fail or end worse than the mean. Scale each column, "
            "(X - X.mean(0)) / X.std(0) (of a constant one subtract the mean), and likewise new inputs; "
            "gpflow_deep.estimators does it.",
            stacklevel=4,
        )


def far_columns(array: np.ndarray, name: str) -> list[str]:
    """
    Descriptions of the columns whose mean or standard deviation is far from those of scaled data.

    :param array: [N, P], finite.
    :param name: what to call it.
    """
    values = array.astype(np.float64)
    with np.errstate(over="ignore"):
        means = values.mean(axis=0)
        # The deviation of equal values is not quite zero.
        spreads = np.where(np.ptp(values, axis=0) > 0, values.std(axis=0), 0.0)
    described = []
    for index, (mean, spread) in enumerate(zip(means, spreads, strict=True)):
        far_spread = spread > 0 and not 1 / _FAR <= spread <= _FAR
        # Of a constant column, or a single row, nothing but its distance from zero tells.
        unit = max(spread, 1 / _FAR) if spread > 0 else 1.0
        if far_spread or abs(mean) > _FAR * unit:
            described.append(
                f"column {index} of {name} (mean {mean:.3g}, standard deviation {spread:.3g})"
            )
    return described


def far_parameters(model: gpflow.models.BayesianModel) -> list[str]:
    """Descriptions of the parameters with a value many orders of magnitude from one, the farthest first."""
    found = []
    for path, parameter in parameter_dict(model).items():
        sizes = np.abs(np.asarray(parameter).astype(np.float64))
        largest = sizes.max(initial=0.0)
        positive = getattr(parameter, "transform", None) is not None and sizes.size == 1
        smallest = sizes.min(initial=np.inf) if positive else 1.0
        if largest > _FAR_PARAMETER:
            found.append((largest, f"parameter {path} reaches {largest:.3g}"))
        elif 0 < smallest < 1 / _FAR_PARAMETER:
            found.append((1 / smallest, f"parameter {path} is down to {smallest:.3g}"))
    return [text for _, text in sorted(found, reverse=True)]
