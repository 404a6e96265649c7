"""Exact GPs of so few rows that their hyperparameters know these by heart."""

from __future__ import annotations

import copy
from collections.abc import Callable
from operator import itemgetter

import numpy as np

from gpflow_deep.presets.exact import ExactGP

from .ascent import LAST_RESORT, NOTHING_BUT_NOISE, START, Objective, maximise
from .calibration import left_out
from .rows import Predicted

__all__ = ["SECONDS_OF_PARTS", "are_few", "each_left_out", "left_out_by_parts"]

_ROWS_AN_INPUT = 10  # fewer are few
_PARTS, _PARTS_TIME = 5, 0.2
_MOST_ROWS = 1000  # hyperparameters of more do not know them
SECONDS_OF_PARTS = 5.0  # fewer do not do for them
_ITERATIONS = 60


def are_few(model: ExactGP, an_input: int = _ROWS_AN_INPUT) -> bool:
    """Whether there are so few rows that hyperparameters tell them by heart; for so many an input."""
    num_rows, num_inputs = model.inputs.shape
    return bool(num_rows < an_input * num_inputs)


def each_left_out(
    model: ExactGP,
    seed: int,
    seconds: float | None,
    named: Callable[[ExactGP], Objective] = Objective,
    an_input: int = _ROWS_AN_INPUT,
) -> Predicted:
    """
    A GP's own rows, each predicted as if it had not been there.

    :param model: with its hyperparameters; they are not changed.
    :param seed: of the parts that few rows are left out in.
    :param seconds: of which these take a fifth.
    :param named: see `left_out_by_parts`.
    :param an_input: how many rows an input are not few.
    """
    own = left_out(model)
    if not are_few(model, an_input):
        return own
    return left_out_by_parts(model, own, _PARTS, seed, seconds, named)


def left_out_by_parts(
    model: ExactGP,
    known: Predicted,
    number: int,
    seed: int,
    seconds: float | None = None,
    named: Callable[[ExactGP], Objective] = Objective,
) -> Predicted:
    """
    Each observation predicted from all others, by hyperparameters that the other parts of the rows tell, its
    own row in none of them: those that were learned with it fit it too well, the more so the fewer rows and
    the more inputs there are. Of more than 1000 rows they hardly do, and stay as they are; so they do where
    there is no time, or not two rows a part.

    :param model: with its hyperparameters; they are not changed.
    :param known: each observation predicted from all others, as the model is.
    :param number: of parts.
    :param seed: of the parts.
    :param seconds: of which all parts together take a fifth.
    :param named: makes the objective of a model like this one.
    """
    X, Y, weights = (v.numpy() for v in (model.inputs, model.targets, model.weights))
    no_time = seconds is not None and seconds < SECONDS_OF_PARTS
    if no_time or not 2 * number <= len(X) <= _MOST_ROWS:
        return known
    kernel, likelihood = map(copy.deepcopy, (model.kernel, model.likelihood))
    twin = ExactGP((X, Y), kernel, likelihood, weights)
    part = np.random.default_rng(seed).permutation(len(X)) % number
    limit = np.inf if seconds is None else _PARTS_TIME * seconds / number
    found = []
    for own in range(number):
        told = part != own
        learner = ExactGP((X[told], Y[told]), kernel, likelihood, weights[told])
        objective = named(learner)
        ends = []
        for start in (START, LAST_RESORT):
            kernel.lengthscales.assign(np.full(X.shape[1], start.lengthscales * X.shape[1] ** 0.5))
            kernel.variance.assign(1.0)
            likelihood.variance.assign(start.noise)
            maximise(objective, _ITERATIONS, limit, 1.0)
            values = objective.values
            ends.append((objective(values)[0], values))
            if likelihood.variance.numpy() < NOTHING_BUT_NOISE:
                break
        objective.assign(min(ends, key=itemgetter(0))[1])
        found.append(left_out(twin))
    rows = np.arange(len(X))
    return Predicted(*(np.stack(arrays)[part, rows] for arrays in zip(*found, strict=True)))
