"""Figures of a benchmark's results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from gpflow_deep.experiments.published import find, published_as
from gpflow_deep.experiments.ranks import Ranks
from gpflow_deep.experiments.summary import Group

__all__ = ["rank_figure", "score_figure"]

_RANKS_WIDTH = 4.0  # inches, at least


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
            theirs = published.get((published_as(entry.model), entry.num_layers))
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


def rank_figure(ranks: Ranks) -> Figure:
    """
    The critical-distance diagram: models at their average ranks, bars over those that do not differ
    significantly, and the critical distance itself.
    """
    names, values = list(ranks.ranks), list(ranks.ranks.values())
    k, cliques = len(names), ranks.cliques()
    figure = Figure(figsize=(8.0, 1.5 + 0.3 * (math.ceil(k / 2) + len(cliques))), dpi=150)
    axes = figure.subplots()
    axes.axis("off")
    axes.hlines(0.0, 1, k, color="black")
    for tick in range(1, k + 1):
        axes.vlines(tick, 0.0, 0.15, color="black")
        axes.text(tick, 0.25, str(tick), ha="center", va="bottom")
    axes.hlines(1.3, 1, 1 + ranks.critical_distance, color="C3", linewidth=2)
    axes.text(
        1 + ranks.critical_distance / 2,
        1.35,
        f"critical distance {ranks.critical_distance:.2f}",
        ha="center",
        va="bottom",
        color="C3",
    )
    for index, clique in enumerate(cliques):
        height = -0.3 - 0.3 * index
        first, last = ranks.ranks[clique[0]], ranks.ranks[clique[-1]]
        axes.hlines(height, first - 0.03, last + 0.03, color="black", linewidth=4)
    start = -0.6 - 0.3 * len(cliques)
    half = math.ceil(k / 2)
    beside = [0.1, 0.1]
    for index, (name, value) in enumerate(zip(names, values)):
        left = index < half
        height = start - 0.5 * (index if left else k - 1 - index)
        end = 0.7 if left else k + 0.3
        axes.plot([value, value, end], [0.0, height, height], color="C0", linewidth=1)
        label = axes.text(
            end + (-0.05 if left else 0.05),
            height,
            f"{name}  {value:.2f}" if left else f"{value:.2f}  {name}",
            ha="right" if left else "left",
            va="center",
        )
        side = 0 if left else 1
        beside[side] = max(beside[side], 0.1 + label.get_window_extent().width / figure.dpi)
    axes.set_xlim(0.65, max(k + 0.35, 1.0 + ranks.critical_distance))
    axes.set_ylim(start - 0.5 * half, 2.0)
    # Names can be of any length: they have their room, and the ranks theirs between them.
    height = figure.get_figheight()
    width = beside[0] + max(_RANKS_WIDTH, 8.0 - sum(beside)) + beside[1]
    figure.set_size_inches(width, height)
    figure.subplots_adjust(
        left=beside[0] / width,
        right=1.0 - beside[1] / width,
        bottom=0.1 / height,
        top=1.0 - 0.1 / height,
    )
    return figure
