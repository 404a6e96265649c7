"""
Scores of predicted class probabilities, such as the mean of `predict_y` with a likelihood of classes::

    accuracy(Y, model.predict_y(Xnew)[0])

Classes are 0, 1, ..., C - 1, in a vector or a column. Probabilities [N, C] that are negative, not finite or
do not sum to one, and classes that do not exist, raise a ValueError that names the argument.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from check_shapes import check_shapes

from ..validation import check_positive_integer
from .arrays import finite_array, real_array

__all__ = [
    "accuracy",
    "brier_score",
    "expected_calibration_error",
    "log_loss",
    "out_of_distribution_auroc",
    "reliability_curve",
]


@check_shapes("probabilities: [N, C]")
def accuracy(Y: Any, probabilities: Any) -> float:
    """
    Share of points whose most probable class is the true one.

    >>> float(gd.metrics.accuracy([0, 1], [[0.9, 0.1], [0.6, 0.4]]))
    0.5

    :param Y: true classes, [N] or [N, 1].
    :param probabilities: predicted.
    """
    probabilities = _probabilities(probabilities, "probabilities")
    return float(np.mean(np.argmax(probabilities, axis=1) == _classes(Y, probabilities)))


@check_shapes("probabilities: [N, C]")
def log_loss(Y: Any, probabilities: Any) -> float:
    """
    Mean negative log probability of the true classes; infinite where one had probability zero.

    >>> round(float(gd.metrics.log_loss([0, 1], [[0.5, 0.5], [0.5, 0.5]])), 4)
    0.6931

    :param Y: true classes, [N] or [N, 1].
    :param probabilities: predicted.
    """
    probabilities = _probabilities(probabilities, "probabilities")
    classes = _classes(Y, probabilities)
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(probabilities[np.arange(len(classes)), classes])))


@check_shapes("probabilities: [N, C]")
def brier_score(Y: Any, probabilities: Any) -> float:
    """
    Mean squared distance of the probabilities, summed over the classes, from 1 for the true class and 0 for
    the others (Brier 1950): from 0 to 2.

    >>> float(gd.metrics.brier_score([0, 1], [[1.0, 0.0], [1.0, 0.0]]))
    1.0

    :param Y: true classes, [N] or [N, 1].
    :param probabilities: predicted.
    """
    probabilities = _probabilities(probabilities, "probabilities")
    truth = np.eye(probabilities.shape[1])[_classes(Y, probabilities)]
    return float(np.mean(np.sum((probabilities - truth) ** 2, axis=1)))


@check_shapes(
    "probabilities: [N, C]",
    "return[0]: [B]",
    "return[1]: [B]",
    "return[2]: [B]",
)
def reliability_curve(
    Y: Any, probabilities: Any, num_bins: int = 15
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Mean confidence, accuracy and number of the points whose confidence, the probability of the most probable
    class, is in each of ``num_bins`` bins of equal width; bins without points are left out (Guo, Pleiss, Sun
    & Weinberger 2017).

    >>> confidence, accuracy, count = gd.metrics.reliability_curve([0, 1], [[0.9, 0.1], [0.9, 0.1]])
    >>> confidence, accuracy, count
    (array([0.9]), array([0.5]), array([2]))

    :param Y: true classes, [N] or [N, 1].
    :param probabilities: predicted.
    :param num_bins: from 0 to 1.
    """
    probabilities = _probabilities(probabilities, "probabilities")
    num_bins = check_positive_integer(num_bins, "num_bins")
    confidences = probabilities.max(axis=1)
    right = np.argmax(probabilities, axis=1) == _classes(Y, probabilities)
    # A bin holds its upper end, as 1 must be in one.
    bins = np.clip(np.ceil(confidences * num_bins).astype(int) - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    sums = [np.bincount(bins, weights=x, minlength=num_bins) for x in (confidences, right)]
    held = counts > 0
    return sums[0][held] / counts[held], sums[1][held] / counts[held], counts[held]


@check_shapes("probabilities: [N, C]")
def expected_calibration_error(Y: Any, probabilities: Any, num_bins: int = 15) -> float:
    """
    Mean distance of confidence and accuracy over the bins of :func:`reliability_curve`, weighted by their
    points (Naeini, Cooper & Hauskrecht 2015).

    >>> sure_and_half_right = [[1.0, 0.0], [1.0, 0.0]]
    >>> float(gd.metrics.expected_calibration_error([0, 1], sure_and_half_right))
    0.5

    :param Y: true classes, [N] or [N, 1].
    :param probabilities: predicted.
    :param num_bins: from 0 to 1.
    """
    confidences, accuracies, counts = reliability_curve(Y, probabilities, num_bins)
    return float(np.average(np.abs(confidences - accuracies), weights=counts))


@check_shapes("inside: [N, C]", "outside: [M, C]")
def out_of_distribution_auroc(inside: Any, outside: Any) -> float:
    """
    How well the entropy of the prediction tells points of another distribution from those of the data's: the
    probability that it is larger for one of the former (the area under the ROC curve); 0.5 for a guess.

    >>> sure, unsure = [[0.99, 0.01], [0.02, 0.98]], [[0.5, 0.5], [0.6, 0.4]]
    >>> float(gd.metrics.out_of_distribution_auroc(sure, unsure))
    1.0

    :param inside: predicted probabilities of points like the data.
    :param outside: of others.
    """
    from scipy.special import entr
    from sklearn.metrics import roc_auc_score  # slow to import, and nothing else here needs it

    parts = [_probabilities(inside, "inside"), _probabilities(outside, "outside")]
    # Of rows in one order, so that those of the same probabilities have the same entropy to the last digit.
    entropies = np.concatenate([entr(np.sort(part, axis=1)).sum(axis=1) for part in parts])
    labels = np.repeat([0, 1], [len(part) for part in parts])
    return float(roc_auc_score(labels, entropies))


def _probabilities(value: Any, name: str) -> np.ndarray:
    array = finite_array(value, name)
    if array.shape[1] == 1:
        raise ValueError(
            f"{name}: expected a column for each class, got one column; of two classes give"
            " [1 - p, p]."
        )
    if not (array >= 0.0).all():
        raise ValueError(f"{name}: expected probabilities of at least 0, got {array.min()}.")
    sums = array.sum(axis=1)
    if not np.allclose(sums, 1.0, atol=1e-4):
        worst = sums[np.argmax(np.abs(sums - 1.0))]
        raise ValueError(f"{name}: expected rows that sum to 1, got a sum of {worst:.6g}.")
    return array / sums[:, None]


def _classes(Y: Any, probabilities: np.ndarray) -> np.ndarray:
    values = real_array(Y, "Y")
    N, C = probabilities.shape
    if values.shape not in ((N,), (N, 1)):
        raise ValueError(f"Y: expected shape [{N}] or [{N}, 1], got {list(values.shape)}.")
    values = values.reshape(N)
    wrong = values[~np.isin(values, np.arange(C))]
    if wrong.size:
        raise ValueError(f"Y: expected classes 0 to {C - 1}, got {wrong[0]}.")
    return values.astype(int)
