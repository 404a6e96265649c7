"""Classifiers of a handful of rows: noise is not known for certain, and what can be told is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from gpflow_deep.estimators import DeepGPClassifier


def _rows(num_rows: int, of: Any, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(num_rows, 3))
    return X, of(X)


@pytest.mark.parametrize(("num_rows", "limit"), [(6, None), (10, 3.0), (20, None)])
def test_random_labels_are_not_known(num_rows: int, limit: float | None) -> None:
    X, y = _rows(num_rows, lambda X: np.arange(len(X)) % 2)
    fitted = DeepGPClassifier(time_limit=limit, random_state=0).fit(X, y)
    assert [tried["name"] for tried in fitted.report_] == ["linear", "gp"]
    new, _ = _rows(500, np.ones_like, seed=9)
    probabilities = fitted.predict_proba(new)
    assert np.quantile(probabilities.max(axis=1), 0.9) < 0.9
    others = LogisticRegression().fit(X, y).predict_proba(new)
    losses = [
        -0.5 * np.log(p).sum(axis=1).mean() for p in (probabilities, others)
    ]  # of half and half
    assert losses[0] < min(losses[1] + 0.05, 0.8)


def test_what_a_column_tells_is_learned() -> None:
    X, y = _rows(20, lambda X: X[:, 0] > np.median(X[:, 0]))
    new, expected = _rows(500, lambda X: X[:, 0] > 0.0, seed=9)
    found = DeepGPClassifier(random_state=0).fit(X, y).predict_proba(new)
    others = LogisticRegression().fit(X, y).predict_proba(new)
    assert log_loss(expected, found) < log_loss(expected, others)


@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (2, 2), (5, 4, 1), (1, 1, 1, 1)])
def test_classes_of_a_row(counts: tuple[int, ...]) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    X = np.random.default_rng(0).normal(size=(len(y), 2)) + 2.0 * np.eye(4)[y, :2]
    probabilities = DeepGPClassifier(random_state=0).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert probabilities.shape == (len(y), len(counts))
    assert np.isfinite(np.log(probabilities)).all()
