"""Which class rows are of: a forest whose leaves count classes, from probabilities that there are already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from .trees import Trees, away, grow_trees, known_by

__all__ = ["Gain", "LabelForest", "Labelled"]

_PRIOR_COUNTS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_MOST_ROWS = 5000  # to judge by
_NEARLY_ALL = 0.99  # of the rows


class Labelled(NamedTuple):
    """Rows, and predictions of their classes that know nothing of these."""

    X: np.ndarray  # [N, D]
    probabilities: np.ndarray  # [N, C]
    variances: np.ndarray  # of the labels, [N, 1]
    codes: np.ndarray  # number of the class, [N]
    weights: np.ndarray  # how many observations each row is, [N]


class Gain(NamedTuple):
    """In log probability, by the trees that rows are new to."""

    gain: float  # on average
    error: float  # of that


class LabelForest(NamedTuple):
    """
    Probabilities of classes: in each leaf of each tree those of the classes counted there, with a Dirichlet
    prior about the probabilities that there were before; the average of the trees.

    Trees are those of Breiman 2001 ("Random forests"). The weight of the prior is what is best for rows that
    a tree was not grown on: where labels are all noise it leaves what was there. Away from the rows, by the
    variance and by the distance from their box, it leaves it too.

    :param trees: T of at most M nodes.
    :param counts: of the classes in leaves, [T, M, C].
    :param prior: how many observations the prior is worth, [].
    :param limits: of the inputs, least and largest, [2, D].
    :param most: variance that labels have at nearly all rows, [].
    :param predicted: whether probabilities [C] follow the inputs [D].
    """

    trees: Trees
    counts: np.ndarray
    prior: np.ndarray
    limits: np.ndarray
    most: np.ndarray
    predicted: bool

    @classmethod
    def grow(
        cls, rows: Labelled, *, predicted: bool, leaf: int, seed: int
    ) -> tuple[LabelForest, Gain]:
        """
        :param rows: whose classes are known.
        :param predicted: whether probabilities are inputs, too.
        :param leaf: least number of rows of one.
        :param seed: of the draws of rows.
        :return: the forest, and what it gains.
        """
        rng = np.random.default_rng(seed)
        inputs = np.hstack([rows.X, rows.probabilities]) if predicted else rows.X

        def make(seed: int) -> DecisionTreeClassifier:
            return DecisionTreeClassifier(
                min_samples_leaf=leaf, max_features="sqrt", random_state=seed
            )

        trees, leaves = grow_trees(make, inputs, rows.codes, rows.weights, rng)
        num_classes = rows.probabilities.shape[1]
        counts = np.zeros([*trees.features.shape, num_classes], np.float32)
        for t, own in enumerate(leaves):
            np.add.at(counts[t], (own.nodes, rows.codes[own.rows]), own.counts)
        judged = rng.permutation(len(inputs))[:_MOST_ROWS]
        unseen = ~known_by(leaves, len(inputs))[:, judged]
        there = np.flatnonzero(unseen.any(axis=0))
        judged, unseen = judged[there], unseen[:, there]
        before, codes = rows.probabilities[judged], rows.codes[judged][:, None]
        counted = _at(counts, trees.leaves(inputs[judged]))
        usual = np.log(np.take_along_axis(before, codes, axis=1)[:, 0])
        best: tuple[float, float, np.ndarray] = -np.inf, 0.0, np.zeros(0)
        for prior in _PRIOR_COUNTS:
            after = _posterior(counted, before, prior, unseen)
            gains = np.log(np.take_along_axis(after, codes, axis=1)[:, 0]) - usual
            mean = float(np.average(gains, weights=rows.weights[judged]))
            if mean > best[0]:
                best = mean, prior, gains
        mean, prior, gains = best
        squares = np.average(np.square(gains - mean), weights=rows.weights[judged])
        forest = cls(
            trees,
            counts,
            np.asarray(prior),
            np.stack([rows.X.min(axis=0), rows.X.max(axis=0)]),
            np.asarray(np.quantile(rows.variances, _NEARLY_ALL)),
            predicted,
        )
        return forest, Gain(mean, float(np.sqrt(squares / len(judged))))

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
        counted = _at(self.counts, self.trees.leaves(inputs))
        after = _posterior(counted, probabilities, float(self.prior))
        share = np.minimum(1.0, self.most / np.maximum(variances, 1e-300)) / away(X, self.limits)
        return probabilities + share * (after - probabilities)

    def arrays(self) -> dict[str, np.ndarray]:
        """All there is of it, by name."""
        own = self._asdict()
        trees = own.pop("trees")._asdict()
        return {name: np.asarray(value) for name, value in (trees | own).items()}

    @classmethod
    def of_arrays(
        cls, arrays: Mapping[str, np.ndarray], num_inputs: int, num_classes: int
    ) -> LabelForest:
        """
        The inverse of `arrays`.

        :raises ValueError: where they are no trees of so many inputs and classes.
        """
        trees = Trees(*(arrays[name] for name in Trees._fields))
        own = {name: arrays[name] for name in cls._fields[1:-1]}
        forest = cls(trees, **own, predicted=bool(arrays["predicted"]))
        trees.check(num_inputs + num_classes * forest.predicted)
        shapes = [array.shape for array in own.values()]
        if shapes != [(*trees.features.shape, num_classes), (), (2, num_inputs), ()]:
            raise ValueError(f"labels: expected arrays of shapes that agree, got {shapes}.")
        if not all(np.isfinite(array).all() for array in (*own.values(), trees.thresholds)):
            raise ValueError("labels: expected finite values, got NaN or infinity.")
        if not ((forest.counts >= 0.0).all() and forest.prior > 0.0):
            raise ValueError("labels: expected counts of at least 0, got negative ones.")
        return forest


def _at(counts: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Of the leaves [T, N] that rows end in: [T, N, C]."""
    counted: np.ndarray = counts[np.arange(len(nodes))[:, None], nodes]
    return counted


def _posterior(
    counted: np.ndarray, before: np.ndarray, prior: float, unseen: np.ndarray | None = None
) -> np.ndarray:
    """The average of the trees, of those that rows are new to if that is known [T, N]."""
    totals = counted.sum(axis=-1, keepdims=True)
    each = (counted + prior * before) / (totals + prior)
    if unseen is None:
        return each.mean(axis=0)
    share = unseen / unseen.sum(axis=0)
    after: np.ndarray = np.einsum("tn,tnc->nc", share, each)
    return after
