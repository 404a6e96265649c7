"""Rows of data that count once or several times, and rows held out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Mixture", "Predicted", "Rows", "distinct_rows", "folds", "hold_out", "mean_and_error"]

_FEW_VALUES = 0.1  # of as many rows
_MOST_OBSERVATIONS = 10**7  # to draw from one by one
_MOST_REPEATED_VALUES = 0.5  # of the rows, for repetitions to be held out one by one
_MOST_REPEATED_NUMBERS = 0.05  # likewise where targets are numbers with digits
_LEAST_SHARED = 0.1  # rows whose inputs other rows have too, for all repetitions to be observations
_MOST_OFTEN = 4  # that rows are, on average, to be taken one by one
_MOST_REPEATED = 10**6  # rows: more take minutes to place inducing inputs among
_SAME = 1e-9  # of the range of values: what arithmetic makes of equal ones


Mixture = tuple[np.ndarray, np.ndarray, np.ndarray]  # means, variances [S, N, P], log weights [S]


class Rows(NamedTuple):
    """Inputs, targets, and how many observations each row is."""

    X: np.ndarray  # [N, D]
    Y: np.ndarray  # [N, P]
    weights: np.ndarray  # [N]

    def take(self, rows: np.ndarray) -> Rows:
        """Some of the rows."""
        return Rows(*(array[rows] for array in self))

    def repeated(self, name: str) -> Rows:
        """
        The rows as often as they count, for objectives in which rows cannot be weighted.

        :param name: of the model, for the message.
        :raises ValueError: where weights are not whole numbers, or of more than a million observations.
        """
        times = _times(self.weights)
        if times is None:
            raise ValueError(
                f"sample_weight: expected whole numbers for {name!r}, whose objective is no sum over rows;"
                " other models take any weights."
            )
        if times.sum() > _MOST_REPEATED:
            raise ValueError(
                f"sample_weight: expected at most {_MOST_REPEATED} observations for {name!r}, which takes"
                f" them one by one, got {times.sum()}; other models take any weights."
            )
        rows = np.repeat(np.arange(len(self.X)), times)
        return Rows(self.X[rows], self.Y[rows], np.ones(len(rows)))

    def rounding_variance(self) -> float:
        """
        What rounding does to targets of few values that come again, such as whole numbers: d^2 / 12, with
        d the least distance of two. The least of all columns; zero where values do not come again.
        """
        steps = []
        for column in self.Y.T:
            apart = _steps(column)
            if not 1 < len(apart) + 1 <= _FEW_VALUES * len(self.Y):
                return 0.0
            steps.append(apart.min())
        return float(min(steps)) ** 2 / 12.0

    def are_few_observations(self) -> bool:
        """Whether rows are repeated as nature does it, and few enough to be taken one by one."""
        times = _natural_times(self.X, self.Y, self.weights)
        if times is None:
            return False
        return bool(times.sum() <= max(_MOST_OFTEN * len(times), _MOST_REPEATED // 10))


class Predicted(NamedTuple):
    """Rows, and a GP's predictions of what was observed there."""

    X: np.ndarray  # [N, D]
    means: np.ndarray  # [N, P]
    variances: np.ndarray  # of one observation, [N, 1]
    residuals: np.ndarray  # [N, P]
    weights: np.ndarray  # [N]
    means_apart: np.ndarray
    """
    Means that know as little of the rows around as of the row itself, [N, P]. A mean that only the row
    itself was left out of tells its target, by what it lacks beside those of the rows around.
    """

    def take(self, rows: np.ndarray) -> Predicted:
        """Some of the rows."""
        return Predicted(*(array[rows] for array in self))

    def one_by_one(self) -> Predicted:
        """Every observation a row, where rows are repeated as nature does it, and not too many."""
        times = _natural_times(self.X, self.means + self.residuals, self.weights)
        if times is None or times.sum() > _MOST_OFTEN * len(times):
            return self
        rows = np.repeat(np.arange(len(times)), times)
        return self.take(rows)._replace(weights=np.ones(len(rows)))


def _times(weights: np.ndarray) -> np.ndarray | None:
    """How often rows are there, [N], where the weights are counts."""
    times = np.rint(weights).astype(int)
    return times if np.all(times > 0) and np.allclose(times, weights, atol=0.0) else None


def _steps(values: np.ndarray) -> np.ndarray:
    """From each value to the next larger one, but for what arithmetic makes of equal ones."""
    apart: np.ndarray = np.diff(np.unique(values))
    rounding = 8.0 * np.finfo(values.dtype).eps * np.max(np.abs(values))
    return apart[apart > max(_SAME * apart.sum(), rounding)]


def _natural_times(X: np.ndarray, Y: np.ndarray, weights: np.ndarray) -> np.ndarray | None:
    """
    How often rows were observed, [N]: their weights, if that can be so. Numbers with digits do not come
    again, or few do, nor do most rows of a table, but where inputs of few values come with several targets:
    elsewhere weights mean something else.
    """
    times = _times(weights)
    if times is None:
        return None
    come_again = all(1 + len(_steps(column)) <= _FEW_VALUES * len(Y) for column in Y.T)
    natural = _MOST_REPEATED_VALUES if come_again else _MOST_REPEATED_NUMBERS
    if np.mean(times > 1) <= natural:
        return times
    num_shared = len(X) - len(np.unique(X, axis=0))
    return times if num_shared >= _LEAST_SHARED * len(X) else None


def distinct_rows(X: np.ndarray, Y: np.ndarray, sample_weight: np.ndarray | None) -> Rows:
    """
    Rows of the same input and target as one, and those of no weight left out, in an order that does not
    depend on theirs: a row of weight two is the same as the row twice.

    :param X: inputs [N, D].
    :param Y: targets [N, P].
    :param sample_weight: at least 0, [N]; one by default.
    """
    weights = np.ones(len(X)) if sample_weight is None else sample_weight
    counted = weights > 0
    both, row = np.unique(np.hstack([X[counted], Y[counted]]), axis=0, return_inverse=True)
    # numpy 2.0 shapes the inverse like the array.
    totals = np.bincount(row.ravel(), weights[counted], minlength=len(both))
    return Rows(both[:, : X.shape[1]], both[:, X.shape[1] :], totals)


def hold_out(rows: Rows, fraction: float, most: int, seed: int, classes: bool) -> tuple[Rows, Rows]:
    """
    Rows to train on, and rows drawn without replacement to score by.

    What is drawn are observations: of a row that counts twice, one may be held out and one not. In data with
    repeated rows new ones repeat them too, and a model that does not learn them by heart is the worse one.
    Where weights mean something else (`_natural_times`) it would be judged by rows that it knows: whole
    rows are then drawn, and so they are where weights are very large.

    :param fraction: of the observations.
    :param most: no more than these are worth their time.
    :param seed: of the draw.
    :param classes: whether the targets are classes, each of which the rows to train on then have.
    """
    times = _natural_times(rows.X, rows.Y, rows.weights)
    if times is not None and times.sum() > _MOST_OBSERVATIONS:
        times = None
    counts = times is not None
    observations = np.repeat(np.arange(len(rows.X)), 1 if times is None else times)
    order = np.random.default_rng(seed).permutation(observations)
    number = min(round(fraction * len(order)), most)
    if classes:
        # The first of each class goes to the end of the line, out of reach.
        _, first = np.unique(rows.Y[order, 0], return_index=True)
        number = min(number, len(order) - len(first))
        order = np.concatenate([np.delete(order, first), order[first]])
    return _counted(rows, order[number:], counts), _counted(rows, order[:number], counts)


def _counted(rows: Rows, observations: np.ndarray, counts: bool) -> Rows:
    """The rows that observations are of, with their weights."""
    chosen, times = np.unique(observations, return_counts=True)
    taken = rows.take(chosen)
    return taken._replace(weights=times.astype(taken.weights.dtype)) if counts else taken


def folds(rows: Rows, number: int, seed: int, classes: bool = False) -> np.ndarray:
    """
    The part of each row in a cross-validation, [N], drawn at random.

    :param number: of parts, of equal size but for a row.
    :param seed: of the draw.
    :param classes: whether the targets are classes, of each of which all parts have as many but for a row:
        of few rows the others would else tell wrong frequencies.
    """
    rng, number_of_each = np.random.default_rng(seed), np.arange(len(rows.X)) % number
    if not classes:
        return rng.permutation(number_of_each)
    order = rng.permutation(len(rows.X))
    part = np.empty(len(order), int)
    part[order[np.argsort(rows.Y[order, 0], kind="stable")]] = number_of_each
    return part


def mean_and_error(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Of those that are there, the weighted mean and its standard error."""
    there = ~np.isnan(values)
    values, weights = values[there], weights[there]
    mean = float(np.average(values, weights=weights))
    squares = np.average(np.square(values - mean), weights=weights)
    return mean, float(np.sqrt(squares / len(values)))
