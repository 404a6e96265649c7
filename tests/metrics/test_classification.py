"""Scores of class probabilities, against scikit-learn and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from gpflow_deep import metrics

_RNG = np.random.default_rng(0)
P = _RNG.dirichlet([0.5, 0.5, 0.5], size=200)
Y = np.array([_RNG.choice(3, p=p) for p in P])


def test_scores_are_those_of_scikit_learn() -> None:
    for targets in (Y, Y[:, None], Y.astype(float)):
        np.testing.assert_allclose(
            metrics.accuracy(targets, P), sklearn_metrics.accuracy_score(Y, P.argmax(axis=1))
        )
        np.testing.assert_allclose(metrics.log_loss(targets, P), sklearn_metrics.log_loss(Y, P))
        by_class = [sklearn_metrics.brier_score_loss(Y == c, P[:, c]) for c in range(3)]
        np.testing.assert_allclose(metrics.brier_score(targets, P), sum(by_class))


def test_reliability_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.85, 0.15], [0.3, 0.7], [1.0, 0.0], [0.5, 0.5]])
    confidence, accuracy, counts = metrics.reliability_curve([0, 1, 1, 0, 0], probabilities, 5)
    np.testing.assert_allclose(confidence, [0.5, 0.7, (0.9 + 0.85 + 1.0) / 3])
    np.testing.assert_allclose(accuracy, [1.0, 1.0, 2 / 3])
    np.testing.assert_array_equal(counts, [1, 1, 3])
    error = metrics.expected_calibration_error([0, 1, 1, 0, 0], probabilities, 5)
    np.testing.assert_allclose(error, 0.2 * 0.5 + 0.2 * 0.3 + 0.6 * (2.75 / 3 - 2 / 3))


def test_calibrated_predictions_have_small_errors() -> None:
    P = _RNG.dirichlet([1.0, 1.0], size=20000)
    Y = (_RNG.uniform(size=20000) < P[:, 1]).astype(int)
    assert metrics.expected_calibration_error(Y, P) < 0.02
    overconfident = np.square(P) / np.square(P).sum(axis=1, keepdims=True)
    assert metrics.expected_calibration_error(Y, overconfident) > 0.05


@given(st.integers(0, 2**31), st.integers(1, 40))
def test_perfect_predictions(seed: int, count: int) -> None:
    Y = np.random.default_rng(seed).integers(4, size=count)
    P = np.eye(4)[Y]
    assert metrics.accuracy(Y, P) == 1.0
    scores = metrics.log_loss(Y, P), metrics.brier_score(Y, P)
    assert scores == (0.0, 0.0) and metrics.expected_calibration_error(Y, P) == 0.0


def test_out_of_distribution() -> None:
    sure, unsure = np.array([[0.99, 0.01], [0.2, 0.8]]), np.array([[0.5, 0.5], [0.6, 0.4]])
    assert metrics.out_of_distribution_auroc(sure, unsure) == 1.0
    assert metrics.out_of_distribution_auroc(unsure, sure) == 0.0
    assert metrics.out_of_distribution_auroc(sure, sure) == 0.5
    # As sure of another class, though sums in another order differ in their last digit.
    assert metrics.out_of_distribution_auroc([[0.6, 0.3, 0.1]], [[0.1, 0.3, 0.6]]) == 0.5


def test_one_column_is_no_probability_of_two_classes() -> None:
    with pytest.raises(ValueError, match=r"probabilities: expected a column for each class"):
        metrics.accuracy([0, 1], [[0.3], [0.8]])


def test_a_class_thought_impossible() -> None:
    assert metrics.log_loss([1], [[1.0, 0.0]]) == np.inf


@pytest.mark.parametrize(
    "Y, P, message",
    [
        ([0, 3], [[0.5, 0.5]] * 2, "Y: expected classes 0 to 1, got 3"),
        ([0], [[0.5, 0.5]] * 2, r"Y: expected shape \[2\] or \[2, 1\], got \[1\]"),
        ([0], [[0.5, 0.4]], "probabilities: expected rows that sum to 1, got a sum of 0.9"),
        (
            [0],
            [[1.5, -0.5]],
            "probabilities: expected probabilities of at least 0, got -0.5",
        ),
        ([0], [[np.nan, 1.0]], "probabilities: expected finite values"),
    ],
)
def test_bad_input(Y: Any, P: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.accuracy(Y, np.array(P))


def test_bad_number_of_bins() -> None:
    with pytest.raises(ValueError, match="num_bins: expected a positive integer, got 0"):
        metrics.reliability_curve(Y, P, 0)
