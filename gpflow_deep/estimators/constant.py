"""A constant as an exact GP of one row."""

from __future__ import annotations

import numpy as np

from gpflow_deep.presets import Settings, get
from gpflow_deep.presets.exact import ExactGP
from gpflow_deep.presets.registry import CONSTANT

from .calibration import Errors, calibrate, predicted
from .rows import Rows

__all__ = ["fit_constant"]


def fit_constant(
    rows: Rows,
    settings: Settings,
    seed: int,
    most: int | None = None,
    seconds: float | None = None,
    forest: bool = True,
) -> tuple[ExactGP, Errors]:
    """
    A constant, and what errors of it are like.

    :param rows: standardised.
    :param settings: name the floor of the noise.
    :param seed: of the draws of rows.
    :param most: how many rows, drawn at random, the errors are of; all by default.
    :param seconds: for these.
    :param forest: whether they may be described by the inputs.
    """
    X, Y = (np.average(array, axis=0, weights=rows.weights)[None] for array in (rows.X, rows.Y))
    model: ExactGP = get(CONSTANT).build(X, Y, settings, seed)
    model.weights.assign(np.sum(rows.weights, keepdims=True))
    some = np.random.default_rng(seed).permutation(len(rows.X))[:most]
    known = predicted(model, rows.take(some))
    return model, calibrate(model, known, seed=seed, forest=forest, seconds=seconds)
