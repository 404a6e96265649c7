"""Figures of a benchmark's results."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gpflow_deep.experiments.published import find
from gpflow_deep.experiments.summary import Group

__all__ = ["score_figure"]


def score_figure(groups: Sequence[Group], metric: str) -> Figure:
    """
    A panel for each data set: every model's mean score with its standard error, and, as an open
    diamond, what was published of the same model and depth.

    :param groups: of one study.
    :param metric: name of the score.
    """
    datasets = list(dict.fromkeys(entry.dataset for entry in groups))
    labels = list(dict.fromkeys(entry.label for entry in groups))
    figure = Figure(figsize=(2.6 + 2.6 * len(datasets), 1.2 + 0.35 * len(labels)), dpi=150)
    panels = figure.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
    for panel, dataset in zip(panels, datasets, strict=True):
        published = {
            (entry.model, entry.num_layers): entry
            for entry in find(dataset, groups[0].study, metric)
        }
        for entry in groups:
            if entry.dataset != dataset:
                continue
            height = labels.index(entry.label)
            score = entry.metric(metric)
            panel.errorbar(score.mean, height, xerr=score.error, fmt="o", color="C0", capsize=3)
            theirs = published.get((entry.model, entry.num_layers))
            if theirs is not None:
                panel.errorbar(
                    theirs.value,
                    height + 0.2,
                    xerr=theirs.error,
                    fmt="D",
                    color="C1",
                    markerfacecolor="none",
                    capsize=3,
                )
        panel.set_title(dataset)
        panel.set_xlabel(metric.replace("_", " "))
        panel.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].set_ylim(len(labels) - 0.5, -0.5)
    figure.tight_layout()
    return figure
