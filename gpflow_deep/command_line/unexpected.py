"""What the rows of a table have that those of training had not, a part of its rows after the other."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from .columns import shortened
from .fitting import FittedTable

__all__ = ["Unexpected"]


class Unexpected:
    """
    Counts, for warnings.

    :param fitted: the fit.
    """

    def __init__(self, fitted: FittedTable) -> None:
        self._fitted = fitted
        self._num_lines = self._num_rows = self._num_far = 0
        self._missing: Counter[str] = Counter()
        self._unseen: Counter[str] = Counter()
        self._examples: dict[str, str] = {}  # of categories

    def add(self, table: pd.DataFrame, far: np.ndarray) -> None:
        """
        Count those of a part.

        :param table: the part, by numbers of lines.
        :param far: which of its rows are out of the ranges of the training data.
        """
        for name, where in self._fitted.recipe.unexpected(table).items():
            self._missing[name] += int(where.sum())
        for name, cells in self._fitted.recipe.unseen(table).items():
            self._unseen[name] += len(cells)
            self._examples.setdefault(name, shortened(cells.iloc[0]))
        self._num_lines = int(table.index[-1]) + 1
        self._num_rows += len(table)
        self._num_far += int(far.sum())

    def lines(self) -> list[str]:
        """For the user."""
        lines = []
        if self._num_lines > self._num_rows:
            blank = self._num_lines - self._num_rows
            lines.append(f"Warning: {blank} blank rows among the others have no prediction.")
        for name, count in self._missing.items():
            lines.append(
                f"Warning: column {name!r} has {count} missing cells, and had none in training: they are"
                " taken for its usual value, or for no category."
            )
        for name, count in self._unseen.items():
            lines.append(
                f"Warning: column {name!r} has {count} cells of categories that it had not in training, such"
                f" as {self._examples[name]!r}: they are taken for no category."
            )
        if self._num_far:
            lines.append(
                f"Warning: {self._num_far} of {self._num_rows} rows are out of the ranges of the training"
                " data; do not rely on them."
            )
        return lines
