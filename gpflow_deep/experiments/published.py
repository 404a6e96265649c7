"""Published values to hold results against, each with its source. A new family adds its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .published_deep_gps import DEEP_GP_DATASETS, DEEP_GPS
from .published_networks import NETWORK_DATASETS, NETWORKS

__all__ = [
    "PAPERS",
    "PUBLISHED",
    "PUBLISHED_SHARES",
    "Published",
    "PublishedShare",
    "find",
    "published_as",
]

#: What the names of models begin with that are set as a paper's authors ran them.
PAPERS = ("lindinger2020-", "ober2021-", "bui2016-", "meng2024-", "havasi2018-")

_LINDINGER = (
    "Lindinger, Reeb, Lippert, Rakitsch, *Beyond the Mean-Field: Structured Deep Gaussian "
    "Processes*, NeurIPS 2020"
)


_Tables = Mapping[str, Mapping[tuple[str, int], Sequence[tuple[float, float | None]]]]


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
        "sghmc",
        3,
        tuple((value, None) for value in (-2.53, -0.34, -2.88, -0.80, 1.25, -2.65, 6.89, -2.58)),
    ),
)
_TABLE_2 = (0.55, 0.73, 0.57, 0.57, 0.36, 0.44, 0.67, 0.49)

_MENG = (
    "Meng, Zhang, *Amortized Variational Inference for Deep Gaussian Processes*, 2024 (five splits of "
    "its own; its SOLVE is not SOLVE-GP, its CRPS is too large: see published_crps)"
)
_OBER = (
    "Ober, Aitchison, *Global inducing point variational posteriors for Bayesian neural networks and deep "
    "Gaussian processes*, ICML 2021"
)

# Scores of standardised targets by metric, model and layers, in the order of these data sets.
_TABLE_5_DATASETS = ("kin8nm", "elevators", "bike", "protein", "keggdirected")
_TABLE_5: dict[str, dict[tuple[str, int], tuple[tuple[float, float], ...]]] = {
    "standardised_nll": {
        ("SOLVE", 1): (
            (0.236, 0.024),
            (0.267, 0.009),
            (0.89, 0.01),
            (1.037, 0.009),
            (0.133, 0.016),
        ),
        ("mean-field", 3): (
            (0.29, 0.024),
            (0.108, 0.02),
            (-0.147, 0.023),
            (1.036, 0.007),
            (-0.028, 0.013),
        ),
        ("dspp", 3): (
            (0.147, 0.028),
            (0.053, 0.014),
            (-0.568, 0.042),
            (0.582, 0.029),
            (-1.551, 0.043),
        ),
        ("idsgp", 1): (
            (0.104, 0.022),
            (0.129, 0.009),
            (-0.171, 0.036),
            (0.994, 0.017),
            (-0.339, 0.043),
        ),
        ("ar2p", 3): (
            (0.118, 0.037),
            (0.125, 0.021),
            (-0.299, 0.035),
            (0.91, 0.012),
            (-0.56, 0.03),
        ),
        ("ar2pp", 3): (
            (0.066, 0.022),
            (0.054, 0.012),
            (-0.742, 0.024),
            (0.226, 0.028),
            (-1.783, 0.021),
        ),
    },
    "standardised_rmse": {
        ("SOLVE", 1): (
            (0.302, 0.012),
            (0.336, 0.01),
            (0.591, 0.009),
            (0.683, 0.006),
            (0.291, 0.005),
        ),
        ("mean-field", 3): (
            (0.316, 0.006),
            (0.289, 0.003),
            (0.23, 0.009),
            (0.688, 0.005),
            (0.252, 0.005),
        ),
        ("dspp", 3): (
            (0.283, 0.008),
            (0.29, 0.005),
            (0.251, 0.009),
            (0.679, 0.009),
            (0.269, 0.007),
        ),
        ("idsgp", 1): ((0.27, 0.006), (0.293, 0.006), (0.23, 0.01), (0.658, 0.009), (0.214, 0.005)),
        ("ar2p", 3): (
            (0.266, 0.007),
            (0.295, 0.003),
            (0.218, 0.006),
            (0.628, 0.007),
            (0.204, 0.004),
        ),
        ("ar2pp", 3): (
            (0.263, 0.004),
            (0.294, 0.003),
            (0.216, 0.005),
            (0.69, 0.006),
            (0.285, 0.021),
        ),
    },
    "standardised_crps_as_published": {
        ("SOLVE", 1): (
            (0.195, 0.005),
            (0.206, 0.002),
            (0.356, 0.002),
            (0.435, 0.005),
            (0.162, 0.002),
        ),
        ("mean-field", 3): (
            (0.195, 0.005),
            (0.174, 0.002),
            (0.126, 0.004),
            (0.423, 0.003),
            (0.137, 0.002),
        ),
        ("dspp", 3): (
            (0.173, 0.005),
            (0.17, 0.002),
            (0.125, 0.005),
            (0.386, 0.006),
            (0.112, 0.003),
        ),
        ("idsgp", 1): (
            (0.172, 0.005),
            (0.178, 0.001),
            (0.129, 0.006),
            (0.402, 0.007),
            (0.107, 0.003),
        ),
        ("ar2p", 3): (
            (0.168, 0.004),
            (0.176, 0.002),
            (0.115, 0.003),
            (0.357, 0.003),
            (0.093, 0.001),
        ),
        ("ar2pp", 3): (
            (0.161, 0.005),
            (0.161, 0.004),
            (0.094, 0.003),
            (0.324, 0.006),
            (0.1, 0.005),
        ),
    },
}


def _of_tables(
    source: str, tables: _Tables, datasets: Sequence[str], splits: int = 1
) -> tuple[Published, ...]:
    """
    Means and errors by metric, then by model and layers, in the order of the data sets.

    :param splits: where they are standard deviations over so many splits.
    """
    return tuple(
        Published(
            source=source,
            model=model,
            num_layers=num_layers,
            dataset=dataset,
            study="interpolation",
            metric=metric,
            value=value,
            error=None if error is None else error / splits**0.5,
        )
        for metric, models in tables.items()
        for (model, num_layers), row in models.items()
        for dataset, (value, error) in zip(datasets, row, strict=True)
    )


PUBLISHED: tuple[Published, ...] = (
    *_of_tables(
        f"{_LINDINGER}, Table 1",
        {"test_log_likelihood": {(model, layers): row for model, layers, row in _TABLE_1}},
        _DATASETS,
    ),
    *_of_tables(f"{_OBER}, Tables 7 to 9", DEEP_GPS, DEEP_GP_DATASETS),
    *_of_tables(f"{_OBER}, Tables 4 to 6", NETWORKS, NETWORK_DATASETS),
    *_of_tables(f"{_MENG}, Table 5", _TABLE_5, _TABLE_5_DATASETS, splits=5),
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


def published_as(model: str) -> str:
    """
    The name under which a model's published scores are found.

    :param model: registered name, perhaps of a paper's own settings.
    """
    for paper in PAPERS:
        model = model.removeprefix(paper)
    return model


def find(dataset: str, study: str, metric: str) -> list[Published]:
    """
    The published scores for one data set.

    :param dataset: its name.
    :param study: name of the study.
    :param metric: name as in the records of the benchmark.
    """
    wanted = (dataset, study, metric)
    return [entry for entry in PUBLISHED if (entry.dataset, entry.study, entry.metric) == wanted]
