"""Published values to hold results against, each with its source. A new family adds its own."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PUBLISHED", "PUBLISHED_SHARES", "Published", "PublishedShare", "find"]

_LINDINGER = (
    "Lindinger, Reeb, Lippert, Rakitsch, *Beyond the Mean-Field: Structured Deep Gaussian "
    "Processes*, NeurIPS 2020"
)


@dataclass(frozen=True)
class Published:
    """
    A published score of a model on a data set.

    :param source: paper and table.
    :param model: registered name, or what the paper calls a model that is not registered.
    :param num_layers: GP layers.
    :param dataset: name of the data set.
    :param study: name of the study.
    :param metric: name as in the records of the benchmark.
    :param value: mean over the splits.
    :param error: its standard error; None where it is not known here.
    """

    source: str
    model: str
    num_layers: int
    dataset: str
    study: str
    metric: str
    value: float
    error: float | None = None


@dataclass(frozen=True)
class PublishedShare:
    """
    A published share of test points to which one model gives a higher density than another.

    :param source: paper and table.
    :param model: registered name of the model that is ahead on this share.
    :param rival: registered name of the other one.
    :param dataset: name of the data set.
    :param study: name of the study.
    :param value: mean over the splits.
    """

    source: str
    model: str
    rival: str
    dataset: str
    study: str
    value: float


# Test log-likelihoods (mean, standard error) in original units, random 90:10 splits. A row a model:
# name, layers, and the values in the order of _DATASETS.
_DATASETS = ("boston", "energy", "concrete", "wine_red", "kin8nm", "power", "naval", "protein")
_TABLE_1: tuple[tuple[str, int, tuple[tuple[float, float | None], ...]], ...] = (
    (
        "stripes-and-arrow",
        3,
        (
            (-2.43, 0.05),
            (-0.75, 0.02),
            (-3.05, 0.02),
            (-0.88, 0.01),
            (1.29, 0.01),
            (-2.77, 0.01),
            (6.25, 0.31),
            (-2.80, 0.00),
        ),
    ),
    (
        "mean-field",
        3,
        (
            (-2.48, 0.06),
            (-0.75, 0.02),
            (-3.09, 0.02),
            (-0.89, 0.01),
            (1.31, 0.01),
            (-2.76, 0.01),
            (7.05, 0.09),
            (-2.79, 0.00),
        ),
    ),
    (
        "svgp",
        1,
        tuple((value, None) for value in (-2.58, -0.71, -3.09, -0.88, 1.05, -2.78, 7.56, -2.91)),
    ),
    (
        "SGHMC",
        3,
        tuple((value, None) for value in (-2.53, -0.34, -2.88, -0.80, 1.25, -2.65, 6.89, -2.58)),
    ),
)
_TABLE_2 = (0.55, 0.73, 0.57, 0.57, 0.36, 0.44, 0.67, 0.49)

PUBLISHED: tuple[Published, ...] = tuple(
    Published(
        source=f"{_LINDINGER}, Table 1",
        model=model,
        num_layers=num_layers,
        dataset=dataset,
        study="interpolation",
        metric="test_log_likelihood",
        value=value,
        error=error,
    )
    for model, num_layers, row in _TABLE_1
    for dataset, (value, error) in zip(_DATASETS, row, strict=True)
)

PUBLISHED_SHARES: tuple[PublishedShare, ...] = tuple(
    PublishedShare(
        source=f"{_LINDINGER}, Table 2",
        model="stripes-and-arrow",
        rival="mean-field",
        dataset=dataset,
        study="extrapolation",
        value=value,
    )
    for dataset, value in zip(_DATASETS, _TABLE_2, strict=True)
)


def find(dataset: str, study: str, metric: str) -> list[Published]:
    """
    The published scores for one data set.

    :param dataset: its name.
    :param study: name of the study.
    :param metric: name as in the records of the benchmark.
    """
    wanted = (dataset, study, metric)
    return [entry for entry in PUBLISHED if (entry.dataset, entry.study, entry.metric) == wanted]
