"""Skewed inputs on a scale on which they are more nearly normal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.stats import kurtosis, skew

from gpflow_deep.presets import recommended

from .calibration import left_out
from .evidence import first_ascent, named_objectives
from .few_rows import SECONDS_OF_PARTS, left_out_by_parts
from .labels import link_of, own_log_probabilities
from .rows import Predicted, Rows, mean_and_error
from .scaling import Scaling, standardisation
from .warping import Warping, some_rows, warpings

__all__ = ["InputWarping", "choose_input_warping", "towards_normal"]

_SKEWED, _LONG_TAILED = 1.0, 3.0  # skewness and excess kurtosis of a column that is worth a try
_LEAST_GAIN = 0.05  # nats a row; less was as often a loss on other rows
_BY_CHANCE = 10.0  # nats in all, which of few rows are more a row
_KERNEL = "matern52"  # that fits begin with: one compilation does for both
_PARTS = 2  # as those by which links are learned
_SHORT = 20.0  # seconds that leave time for few rows only
_FEWEST_ROWS = 30  # that tell scales apart
_ENOUGH_ROWS = 10_000  # for a column's shape: of a million, trying 26 scales takes a second


class InputWarping(NamedTuple):
    r"""
    :math:`b \sinh^{-1}((x - a) / b)` of each standardised input, as of targets, standardised again. Beyond
    the known values it goes on as without: rows that are far away are far away. All are [D].
    """

    centre: np.ndarray  # a
    width: np.ndarray  # b; 0 leaves a column as it is
    low: np.ndarray  # least and greatest value that is known
    high: np.ndarray
    mean: np.ndarray  # of the warped values
    scale: np.ndarray

    @property
    def columns(self) -> np.ndarray:
        """Which are warped."""
        return np.flatnonzero(self.width)

    def forward(self, X: np.ndarray) -> np.ndarray:
        """Standardised inputs [N, D] on the new scale."""
        d = self.columns
        known = np.clip(X[:, d], self.low[d], self.high[d])
        curved = self.width[d] * np.arcsinh((known - self.centre[d]) / self.width[d])
        warped = X.copy()
        warped[:, d] += (curved - self.mean[d]) / self.scale[d] - known
        return warped


def towards_normal(X: np.ndarray, weights: np.ndarray | None = None) -> InputWarping | None:
    """
    The warping under which skewed and long-tailed columns of more than two values are the most probable, were
    they normal; ``None`` where there are no such columns. Of many rows some, evenly spaced, have to do.

    :param X: standardised inputs [N, D], no row twice.
    :param weights: how often each was observed, [N], of which mean and deviation are.
    """
    zero, one = np.zeros(X.shape[1]), np.ones(X.shape[1])
    warping = InputWarping(zero.copy(), zero.copy(), X.min(0), X.max(0), zero, one)
    some = X[:: max(1, len(X) // _ENOUGH_ROWS)]
    for d in np.flatnonzero(np.ptp(some, axis=0)):
        x = some[:, d]
        is_skewed = abs(skew(x)) > _SKEWED or kurtosis(x) > _LONG_TAILED
        if is_skewed and len(np.unique(x)) > 2:
            best = max([None, *warpings(x)], key=partial(_normality, x))
            if best is not None:
                warping.centre[d], warping.width[d] = best.centre, best.width
    if not len(warping.columns):
        return None
    mean, scale = standardisation(warping.forward(X), weights)
    # What is standardised stays so.
    warped = warping.width > 0.0
    return warping._replace(mean=np.where(warped, mean, 0.0), scale=np.where(warped, scale, 1.0))


def _normality(x: np.ndarray, warping: Warping | None) -> float:
    """The log density of values, on average but for a constant, were the warped ones normal."""
    if warping is None:
        return -float(np.log(np.std(x)))
    return float(np.mean(warping.log_slope(x)) - np.log(np.std(warping.forward(x))))


def choose_input_warping(
    rows: Rows,
    seed: int,
    seconds: float | None = None,
    *,
    num_classes: int | None = None,
) -> InputWarping | None:
    """
    That of skewed inputs, if an exact GP of some rows is clearly better with it. Of few rows there is none.

    :param rows: in the units of the data.
    :param seed: of the draw of rows.
    :param seconds: that the fit may take, of which this is to take a small part.
    :param num_classes: of targets that are classes.
    """
    if len(rows.X) < _FEWEST_ROWS:
        return None
    scaling = Scaling.fit(*rows)
    warping = towards_normal(scaling.inputs(rows.X), rows.weights)
    if warping is None:
        return None
    some = some_rows(rows, seed, seconds, _SHORT)
    plain = scaling.inputs(some.X)
    plainly, warped = (some._replace(X=X) for X in (plain, warping.forward(plain)))
    if num_classes is None:
        better = _is_better(plainly, warped, seed)
    else:
        better = _tells_classes(plainly, warped, num_classes, seed, seconds)
    return warping if better else None


def _is_better(plainly: Rows, warped: Rows, seed: int) -> bool:
    """
    Whether the GP has more evidence, and predicts rows better from the others: evidence alone takes what
    names rows that come again. Rounded targets that are named, with less noise than rounding makes, tell
    nothing of inputs.
    """
    reached = []
    for rows in (plainly, warped):
        scaling = Scaling.fit(*rows)
        rows = rows._replace(X=scaling.inputs(rows.X), Y=scaling.targets(rows.Y))
        settings = replace(recommended("gp", *rows.X.shape), kernel=_KERNEL)
        model, found = first_ascent(rows, settings, seed)
        if float(model.likelihood.variance.numpy()) < rows.rounding_variance():
            return False
        reached.append(found)
    gain = max(_LEAST_GAIN, _BY_CHANCE / len(plainly.X))
    return bool((reached[1] - reached[0] > gain).all())


def _tells_classes(
    plainly: Rows,
    warped: Rows,
    num_classes: int,
    seed: int,
    seconds: float | None,
) -> bool:
    """
    Whether probabilities by a GP of the labels are better for rows left out by more than a standard error,
    both where its hyperparameters know their labels and where they do not: of few rows the former may be so
    by heart, and the latter are told by half as many.
    """
    if seconds is not None and seconds < SECONDS_OF_PARTS:
        return False
    likelihood = "bernoulli" if num_classes == 2 else "softmax"
    settings = recommended("gp", *plainly.X.shape, likelihood=likelihood)
    settings = replace(settings, num_classes=num_classes, kernel=_KERNEL)
    named = named_objectives("gp", settings)
    pair = [rows._replace(X=Scaling.fit(*rows).inputs(rows.X)) for rows in (plainly, warped)]
    models = [first_ascent(rows, settings, seed)[0] for rows in pair]
    own = [left_out(model) for model in models]

    def is_better(known: Iterable[Predicted]) -> bool:
        before, after = (
            own_log_probabilities(each, link_of(each), rows, seed)
            for each, rows in zip(known, pair, strict=True)
        )
        gain, error = mean_and_error(after - before, plainly.weights)
        return gain > error

    # The latter take longer, and are asked where the former are for it.
    return is_better(own) and is_better(
        left_out_by_parts(model, known, _PARTS, seed, seconds, named)
        for model, known in zip(models, own, strict=True)
    )
