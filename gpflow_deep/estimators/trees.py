"""Trees as arrays: grown by scikit-learn, walked and saved without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed

__all__ = ["NUM_TREES", "Leaves", "Trees", "away", "grow_trees", "known_by"]

NUM_TREES = 64
_MOST_ROWS = 5000  # of a tree


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

    def check(self, num_columns: int) -> None:
        """
        :param num_columns: of their inputs.
        :raises ValueError: where they are no trees of such inputs.
        """
        shapes = [array.shape for array in self]
        T, M = self.features.shape
        if shapes != [(T, M), (T, M), (T, M, 2)]:
            raise ValueError(f"trees: expected arrays of shapes that agree, got {shapes}.")
        inner = self.features >= 0
        children, own = self.children[inner], np.broadcast_to(np.arange(M), [T, M])[inner]
        leads_on = ((children > own[:, None]) & (children < M)).all()
        if not (leads_on and (self.features < num_columns).all()):
            raise ValueError("trees: expected nodes that lead to leaves, got others.")


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
) -> tuple[Trees, list[Leaves]]:
    """
    Trees that are grown on draws of the rows with replacement (Breiman 2001, "Random forests").

    :param make: a scikit-learn tree, from the seed of its own draws.
    :param inputs: [N, D].
    :param targets: as the trees take them.
    :param weights: how many observations each row is, [N].
    :param rng: of the draws.
    """
    inputs = inputs.astype(np.float32)  # as scikit-learn does
    shares = None if np.ptp(weights) == 0.0 else weights / weights.sum()
    draws = []
    for _ in range(NUM_TREES):
        drawn = rng.choice(len(inputs), min(len(inputs), _MOST_ROWS), p=shares)
        draws.append((*np.unique(drawn, return_counts=True), int(rng.integers(2**31))))

    def grow(own: np.ndarray, counts: np.ndarray, seed: int) -> tuple[Any, Leaves]:
        tree = make(seed).fit(inputs[own], targets[own], counts).tree_
        return tree, Leaves(own, counts, tree.apply(inputs[own]))

    grown = Parallel(n_jobs=-1, prefer="threads")(delayed(grow)(*draw) for draw in draws)
    size = max(tree.node_count for tree, _ in grown)
    features = np.full([NUM_TREES, size], -1, np.int32)
    thresholds = np.zeros([NUM_TREES, size])
    children = np.zeros([NUM_TREES, size, 2], np.int32)
    for t, (tree, _) in enumerate(grown):
        nodes, inner = slice(tree.node_count), tree.children_left >= 0
        features[t, nodes] = np.where(inner, tree.feature, -1)
        thresholds[t, nodes] = np.where(inner, tree.threshold, 0.0)
        both = np.stack([tree.children_left, tree.children_right], axis=1)
        children[t, nodes] = np.where(inner[:, None], both, 0)
    return Trees(features, thresholds, children), [leaves for _, leaves in grown]


def known_by(leaves: list[Leaves], num_rows: int) -> np.ndarray:
    """Which tree was grown on which row, [T, N]."""
    known = np.zeros([len(leaves), num_rows], bool)
    for t, own in enumerate(leaves):
        known[t, own.rows] = True
    return known


def away(X: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """
    One and the squared distance of inputs from a box, [N, 1].

    :param X: inputs [N, D].
    :param limits: least and largest, [2, D].
    """
    outside: np.ndarray = np.sum(np.square(X - np.clip(X, *limits)), axis=1, keepdims=True)
    return 1.0 + outside
