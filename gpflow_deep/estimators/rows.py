"""Rows of data that count once or several times, and rows held out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Rows", "distinct_rows", "hold_out"]


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
        :raises ValueError: where weights are not whole numbers.
        """
        times = np.rint(self.weights).astype(int)
        if not np.allclose(times, self.weights):
            raise ValueError(
                f"sample_weight: expected whole numbers for {name!r}, whose objective is no sum over rows;"
                " other models take any weights."
            )
        rows = np.repeat(np.arange(len(self.X)), times)
        return Rows(self.X[rows], self.Y[rows], np.ones(len(rows)))


def distinct_rows(X: np.ndarray, Y: np.ndarray, sample_weight: np.ndarray | None) -> Rows:
    """
    Rows of the same input and target as one, and those of no weight left out, in an order that does not
    depend on theirs: a row of weight two is the same as the row twice, and no held-out row has its twin among
    the others.

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

    :param fraction: of the rows.
    :param most: no more than these are worth their time.
    :param seed: of the draw.
    :param classes: whether the targets are classes, each of which the rows to train on then have.
    """
    order = np.random.default_rng(seed).permutation(len(rows.X))
    number = min(round(fraction * len(order)), most)
    if classes:
        # The first of each class goes to the end of the line, out of reach.
        _, first = np.unique(rows.Y[order, 0], return_index=True)
        number = min(number, len(order) - len(first))
        order = np.concatenate([np.delete(order, first), order[first]])
    return rows.take(np.sort(order[number:])), rows.take(np.sort(order[:number]))
