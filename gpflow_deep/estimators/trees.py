"""Trees as arrays, and forests of them: grown by scikit-learn, walked and saved without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

__all__ = [
    "Forest",
    "Leaves",
    "NoTimeError",
    "Trees",
    "deadline_in",
    "grow_trees",
    "limits_of",
    "unseen_rows",
]

_NUM_TREES = 64
_MOST_ROWS = 5000  # of a tree, and to judge by
_NEARLY_ALL = 0.99  # of the rows

_Forest = TypeVar("_Forest", bound="Forest")


class NoTimeError(Exception):
    """A forest would take longer than there is time for."""


def deadline_in(seconds: float | None) -> float:
    """The moment, of :func:`time.perf_counter`, in so many seconds; never where they are not limited."""
    return np.inf if seconds is None else time.perf_counter() + seconds


class Trees(NamedTuple):
    """
    T trees of at most M nodes.

    :param features: that nodes split on, [T, M], -1 for leaves.
    :param thresholds: above which the second child follows, [T, M].
    :param children: [T, M, 2], after their parents, so that every walk ends.
    """

    features: np.ndarray
    thresholds: np.ndarray
    children: np.ndarray

    def leaves(self, inputs: np.ndarray) -> np.ndarray:
        """The nodes that inputs end in, [T, N]."""
        inputs = inputs.astype(np.float32)  # in which the thresholds were found
        rows, trees = np.arange(len(inputs)), np.arange(len(self.features))[:, None]
        nodes = np.zeros([len(self.features), len(inputs)], np.intp)
        while (inner := (feature := self.features[trees, nodes]) >= 0).any():
            right = inputs[rows, np.maximum(feature, 0)] > self.thresholds[trees, nodes]
            nodes = np.where(inner, self.children[trees, nodes, right.astype(np.intp)], nodes)
        return nodes

    def check(self, name: str, num_columns: int) -> None:
        """
        :param name: of what they are for, for the message.
        :param num_columns: of their inputs.
        :raises ValueError: where they are no trees of such inputs.
        """
        shapes = [array.shape for array in self]
        T, M = self.features.shape
        if shapes != [(T, M), (T, M), (T, M, 2)]:
            raise ValueError(f"{name}: expected arrays of shapes that agree, got {shapes}.")
        inner = self.features >= 0
        children, own = self.children[inner], np.broadcast_to(np.arange(M), [T, M])[inner]
        leads_on = ((children > own[:, None]) & (children < M)).all()
        if not (leads_on and (self.features < num_columns).all()):
            raise ValueError(f"{name}: expected trees, got nodes that lead nowhere.")


class Leaves(NamedTuple):
    """The rows that one tree was grown on."""

    rows: np.ndarray  # [n], each once
    counts: np.ndarray  # how often each was drawn, [n]
    nodes: np.ndarray  # in which each ends, [n]


def grow_trees(
    make: Callable[[int], Any],
    inputs: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    rng: np.random.Generator,
    deadline: float = np.inf,
) -> tuple[Trees, list[Leaves]]:
    """
    Trees that are grown on draws of the rows with replacement (Breiman 2001, "Random forests").

    :param make: a scikit-learn tree, from the seed of its own draws.
    :param inputs: [N, D].
    :param targets: as the trees take them.
    :param weights: how many observations each row is, [N].
    :param rng: of the draws.
    :param deadline: for all of them.
    :raises NoTimeError: where the first tree tells that they would not meet it.
    """
    inputs = inputs.astype(np.float32)  # as scikit-learn does
    shares = None if np.ptp(weights) == 0.0 else weights / weights.sum()
    draws = []
    for _ in range(_NUM_TREES):
        drawn = rng.choice(len(inputs), min(len(inputs), _MOST_ROWS), p=shares)
        draws.append((*np.unique(drawn, return_counts=True), int(rng.integers(2**31))))

    def grow(own: np.ndarray, counts: np.ndarray, seed: int) -> tuple[Any, Leaves]:
        tree = make(seed).fit(inputs[own], targets[own], counts).tree_
        return tree, Leaves(own, counts, tree.apply(inputs[own]))

    started = time.perf_counter()
    grown = [grow(*draws[0])]
    taken = time.perf_counter() - started
    if started + taken * _NUM_TREES / min(effective_n_jobs(-1), _NUM_TREES) > deadline:
        raise NoTimeError
    grown += Parallel(n_jobs=-1, prefer="threads")(delayed(grow)(*draw) for draw in draws[1:])
    size = max(tree.node_count for tree, _ in grown)
    features = np.full([_NUM_TREES, size], -1, np.int32)
    thresholds = np.zeros([_NUM_TREES, size])
    children = np.zeros([_NUM_TREES, size, 2], np.int32)
    for t, (tree, _) in enumerate(grown):
        nodes, inner = slice(tree.node_count), tree.children_left >= 0
        features[t, nodes] = np.where(inner, tree.feature, -1)
        thresholds[t, nodes] = np.where(inner, tree.threshold, 0.0)
        both = np.stack([tree.children_left, tree.children_right], axis=1)
        children[t, nodes] = np.where(inner[:, None], both, 0)
    return Trees(features, thresholds, children), [leaves for _, leaves in grown]


def unseen_rows(
    leaves: list[Leaves], num_rows: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """
    Rows to judge a forest by, in random order, and which tree was not grown on which of them, [T, N].

    :param rng: of the draw, where there are more than 5000.
    """
    judged = rng.permutation(num_rows)[:_MOST_ROWS]
    unseen = np.ones([len(leaves), num_rows], bool)
    for t, own in enumerate(leaves):
        unseen[t, own.rows] = False
    return judged, unseen[:, judged]


def limits_of(X: np.ndarray, variances: np.ndarray) -> dict[str, np.ndarray]:
    """Those of a forest, by name: of rows with inputs [N, D] and predicted variances [N, 1]."""
    return {
        "limits": np.stack([X.min(axis=0), X.max(axis=0)]).astype(np.float64),
        "most": np.asarray(np.quantile(variances, _NEARLY_ALL)),
    }


@dataclass(frozen=True)
class Forest:
    """
    Trees that change what a GP predicts.

    Trees say the same however far from all rows they are asked. So there what they say fades, and leaves the
    prediction as it is: with the variance that it has beyond that of nearly all rows, and with the squared
    distance of the inputs from the rows' box.

    :param trees: T of at most M nodes.
    :param limits: of the inputs without predictions, least and largest, [2, D].
    :param most: variance that predictions of nearly all rows have at most, [].
    :param predicted: whether predictions follow the inputs [D].
    """

    trees: Trees
    limits: np.ndarray
    most: np.ndarray
    predicted: bool

    def share(self, X: np.ndarray, variances: np.ndarray) -> np.ndarray:
        """How much of what the trees say is taken, [N, P], at inputs [N, D] and variances [N, P]."""
        outside = np.sum(np.square(X - np.clip(X, *self.limits)), axis=1, keepdims=True)
        share: np.ndarray = np.minimum(variances, self.most) / variances / (1.0 + outside)
        return share

    def arrays(self) -> dict[str, np.ndarray]:
        """All there is of it, by name."""
        own = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)[1:]}
        return self.trees._asdict() | own

    @classmethod
    def _of_arrays(
        cls: type[_Forest],
        arrays: Mapping[str, np.ndarray],
        name: str,
        num_inputs: int,
        num_predictions: int,
        **shapes: tuple[int, ...],
    ) -> _Forest:
        """
        The inverse of `arrays`.

        :param name: of what it is for, for the message.
        :param num_predictions: that follow the inputs if any do.
        :param shapes: of the arrays that the forest has beside these.
        :raises ValueError: where they are no such forest.
        """
        trees = Trees(*(arrays[field] for field in Trees._fields))
        predicted = bool(arrays["predicted"])
        trees.check(name, num_inputs + num_predictions * predicted)
        shapes |= {"limits": (2, num_inputs), "most": ()}
        own = {key: arrays[key] for key in shapes}
        found = {key: array.shape for key, array in own.items()}
        if found != shapes:
            raise ValueError(f"{name}: expected arrays of shapes that agree, got {found}.")
        if not all(np.isfinite(array).all() for array in (*own.values(), trees.thresholds)):
            raise ValueError(f"{name}: expected finite values, got NaN or infinity.")
        return cls(trees=trees, predicted=predicted, **own)
