"""
Average ranks of models over data sets, with the critical distance of the Nemenyi test (Demsar, *Statistical
Comparisons of Classifiers over Multiple Data Sets*, JMLR 2006).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import rankdata, studentized_range

from gpflow_deep.experiments.summary import Group

__all__ = ["Ranks", "average_ranks", "critical_distance"]


@dataclass(frozen=True)
class Ranks:
    """
    Average ranks over data sets.

    :param ranks: by model, the best first; rank 1 is the best possible.
    :param datasets: that all of these models have been run on.
    :param critical_distance: two models differ significantly whose average ranks differ by more.
    """

    ranks: dict[str, float]
    datasets: tuple[str, ...]
    critical_distance: float

    def cliques(self) -> list[tuple[str, ...]]:
        """The longest runs of models, in their order, that do not differ significantly."""
        names, values = list(self.ranks), np.array(list(self.ranks.values()))
        runs: list[tuple[str, ...]] = []
        end = 0
        for first, value in enumerate(values):
            last = int(np.searchsorted(values, value + self.critical_distance, side="right"))
            if last > end and last - first > 1:
                runs.append(tuple(names[first:last]))
            end = max(end, last)
        return runs


def critical_distance(num_models: int, num_datasets: int, level: float = 0.05) -> float:
    """
    Of the Nemenyi test (Demsar 2006, section 3.2.2).

    :param num_models: at least 2.
    :param num_datasets: at least 1.
    :param level: of significance.
    """
    q = studentized_range.ppf(1.0 - level, num_models, np.inf) / math.sqrt(2.0)
    return float(q * math.sqrt(num_models * (num_models + 1) / (6.0 * num_datasets)))


def average_ranks(groups: Sequence[Group], metric: str) -> Ranks | None:
    """
    Rank the models of a study on every data set by their mean score over the splits, and average.

    Compared are the data sets that all models of the study have been run on, by the splits that they share.

    :param groups: of one study.
    :param metric: name of a score of which more is better.
    :return: None where there are fewer than two models or two such data sets.
    """
    labels = list(dict.fromkeys(entry.label for entry in groups))
    rows, datasets = [], []
    for dataset in dict.fromkeys(entry.dataset for entry in groups):
        here = {entry.label: entry for entry in groups if entry.dataset == dataset}
        splits = [{record["split"] for record in entry.records} for entry in here.values()]
        shared = set.intersection(*splits)
        if len(here) == len(labels) and shared:
            rows.append([_mean(here[label], metric, shared) for label in labels])
            datasets.append(dataset)
    if len(labels) < 2 or len(datasets) < 2:
        return None
    means = rankdata(-np.array(rows), axis=1).mean(axis=0)
    order = np.argsort(means, kind="stable")
    ranks = {labels[index]: float(means[index]) for index in order}
    return Ranks(ranks, tuple(datasets), critical_distance(len(labels), len(datasets)))


def _mean(entry: Group, metric: str, splits: set[int]) -> float:
    records = tuple(record for record in entry.records if record["split"] in splits)
    return replace(entry, records=records).metric(metric).mean
