"""Which class rows are of: a forest whose leaves count classes, from probabilities that there are already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from .rows import mean_and_error
from .trees import Forest, grow_trees, limits_of, unseen_rows

__all__ = ["Gain", "LabelForest", "Labelled"]

_PRIOR_COUNTS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


class Labelled(NamedTuple):
    """Rows, and predictions of their classes that know nothing of these."""

    X: np.ndarray  # [N, D]
    probabilities: np.ndarray  # [N, C]
    probabilities_apart: np.ndarray  # that know as little of the rows around, [N, C]
    variances: np.ndarray  # of the labels, [N, 1]
    codes: np.ndarray  # number of the class, [N]
    weights: np.ndarray  # how many observations each row is, [N]


class Gain(NamedTuple):
    """In log probability, by the trees that rows are new to."""

    gain: float  # on average
    error: float  # of that
    each: np.ndarray  # of each row, [N]; NaN where no tree is there to tell


@dataclass(frozen=True)
class LabelForest(Forest):
    """
    Probabilities of classes: in each leaf of each tree those of the classes counted there, with a Dirichlet
    prior about the probabilities that there were before; the average of the trees.

    Trees are those of Breiman 2001 ("Random forests"). The weight of the prior is what is best for rows that
    a tree was not grown on: where labels are all noise it leaves what was there.

    :param counts: of the classes in leaves, [T, M, C].
    :param prior: how many observations the prior is worth, [].
    """

    counts: np.ndarray
    prior: np.ndarray

    @classmethod
    def grow(
        cls,
        rows: Labelled,
        *,
        predicted: bool,
        leaf: int,
        seed: int,
        deadline: float = np.inf,
    ) -> tuple[LabelForest, Gain]:
        """
        :param rows: whose classes are known.
        :param predicted: whether probabilities are inputs, too.
        :param leaf: least number of rows of one.
        :param seed: of the draws of rows.
        :param deadline: of its trees.
        :return: the forest, and what it gains.
        :raises NoTimeError: where the trees would not meet it.
        """
        rng = np.random.default_rng(seed)
        inputs = np.hstack([rows.X, rows.probabilities_apart]) if predicted else rows.X

        def make(seed: int) -> DecisionTreeClassifier:
            return DecisionTreeClassifier(
                min_samples_leaf=leaf, max_features="sqrt", random_state=seed
            )

        trees, leaves = grow_trees(make, inputs, rows.codes, rows.weights, rng, deadline)
        num_classes = rows.probabilities.shape[1]
        counts = np.zeros([*trees.features.shape, num_classes], np.float32)
        for t, own in enumerate(leaves):
            np.add.at(counts[t], (own.nodes, rows.codes[own.rows]), own.counts)
        judged, unseen = unseen_rows(leaves, len(inputs), rng)
        there = np.flatnonzero(unseen.any(axis=0))
        judged, unseen = judged[there], unseen[:, there]
        # Of the own class only: of all they would be a number for each tree, row and class.
        own_class = rows.codes[judged]
        before = rows.probabilities[judged, own_class]
        nodes, each = trees.leaves(inputs[judged]), np.arange(len(counts))[:, None]
        counted, totals = counts[each, nodes, own_class], counts.sum(axis=-1)[each, nodes]
        share = unseen / unseen.sum(axis=0)

        def gain_of(prior: float) -> Gain:
            after = np.sum(share * _posterior(counted, totals, before, prior), axis=0)
            each = np.full(len(inputs), np.nan)
            each[judged] = np.log(after) - np.log(before)
            return Gain(*mean_and_error(each, rows.weights), each)

        gains = {prior: gain_of(prior) for prior in _PRIOR_COUNTS}
        best = max(_PRIOR_COUNTS, key=lambda prior: gains[prior].gain)
        forest = cls(
            trees=trees,
            predicted=predicted,
            counts=counts,
            prior=np.asarray(best),
            **limits_of(rows.X, rows.variances),
        )
        return forest, gains[best]

    def probabilities(
        self, X: np.ndarray, probabilities: np.ndarray, variances: np.ndarray
    ) -> np.ndarray:
        """
        Of the classes, [N, C].

        :param X: inputs [N, D].
        :param probabilities: those before, [N, C].
        :param variances: of the labels, [N, 1].
        """
        inputs = np.hstack([X, probabilities]) if self.predicted else X
        nodes = self.trees.leaves(inputs)
        counted = self.counts[np.arange(len(nodes))[:, None], nodes]
        totals = counted.sum(axis=-1, keepdims=True)
        after = _posterior(counted, totals, probabilities, float(self.prior)).mean(axis=0)
        return probabilities + self.share(X, variances) * (after - probabilities)

    @classmethod
    def of_arrays(
        cls, arrays: Mapping[str, np.ndarray], num_inputs: int, num_classes: int
    ) -> LabelForest:
        """
        The inverse of `arrays`.

        :raises ValueError: where they are no trees of so many inputs and classes.
        """
        counts = (*arrays["features"].shape, num_classes)
        forest = cls._of_arrays(arrays, "labels", num_inputs, num_classes, counts=counts, prior=())
        if not ((forest.counts >= 0.0).all() and forest.prior > 0.0):
            raise ValueError("labels: expected counts of at least 0, got negative ones.")
        return forest


def _posterior(
    counted: np.ndarray, totals: np.ndarray, before: np.ndarray, prior: float
) -> np.ndarray:
    """Probabilities by each tree, of classes counted among so many, whose prior is worth so many."""
    posterior: np.ndarray = (counted + prior * before) / (totals + prior)
    return posterior
