"""Divisions of a data set into training and test points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpflow_deep.estimators.scaling import standardisation
from gpflow_deep.experiments.datasets import Dataset

__all__ = ["STUDIES", "Split", "extrapolation_split", "interpolation_split"]


@dataclass(frozen=True)
class Split:
    """
    Row numbers of the training and of the test points; no row is in both.

    :param train: integers [N_train].
    :param test: integers [N_test].
    """

    train: np.ndarray
    test: np.ndarray


def interpolation_split(dataset: Dataset, index: int) -> Split:
    """
    Nine tenths of the points for training, one tenth, from among them, for testing.

    The published split where the data set has any, a random one drawn from `index` otherwise.

    :param dataset: at least two points.
    :param index: number of the split, from 0.
    :raises ValueError: where the data set has fewer published splits.
    """
    num_data = _check(dataset, index)
    if dataset.test_masks is None:
        order = np.random.default_rng(index).permutation(num_data)
        num_test = max(1, round(0.1 * num_data))
        return Split(train=np.sort(order[num_test:]), test=np.sort(order[:num_test]))
    if index >= len(dataset.test_masks):
        raise ValueError(
            f"index: {dataset.name} has {len(dataset.test_masks)} published splits, "
            f"numbered from 0, got {index}."
        )
    mask = dataset.test_masks[index]
    return Split(train=np.flatnonzero(~mask), test=np.flatnonzero(mask))


def extrapolation_split(dataset: Dataset, index: int) -> Split:
    """
    One half of the input space for training, the other for testing.

    The standardised inputs are projected on a random direction w ~ N(0, I_D), drawn from `index`;
    the half with the smaller projections is for training (Lindinger, Reeb, Lippert and Rakitsch,
    *Beyond the Mean-Field: Structured Deep Gaussian Processes*, NeurIPS 2020).

    :param dataset: at least two points.
    :param index: number of the split, from 0.
    """
    num_data = _check(dataset, index)
    mean, scale = standardisation(dataset.X)
    direction = np.random.default_rng(index).normal(size=dataset.X.shape[1])
    order = np.argsort((dataset.X - mean) / scale @ direction, kind="stable")
    half = num_data // 2
    return Split(train=np.sort(order[:half]), test=np.sort(order[half:]))


def _check(dataset: Dataset, index: int) -> int:
    if index < 0:
        raise ValueError(f"index: expected a split number from 0, got {index}.")
    num_data = len(dataset.X)
    if num_data < 2:
        raise ValueError(f"dataset: {dataset.name} has {num_data} points; a split needs two.")
    return num_data


#: The studies of Lindinger et al. 2020, by name.
STUDIES: dict[str, Callable[[Dataset, int], Split]] = {
    "interpolation": interpolation_split,
    "extrapolation": extrapolation_split,
}
