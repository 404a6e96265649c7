"""Classification with deep GPs, as scikit-learn has it."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .base import DeepGPEstimator
from .data import check_labels, check_unmasked, checked_data, checked_weights

__all__ = ["DeepGPClassifier"]


class DeepGPClassifier(ClassifierMixin, DeepGPEstimator):
    """
    A Gaussian process classifier, deep where that pays; see `DeepGPRegressor` for the parameters.

    Two classes have one function and a probit likelihood, more a function each and a softmax. With
    ``model="auto"`` and from 200 rows on an exact GP of the labels, with a link that is learned after it and
    with a forest where that helps, a sparse GP and a deep one are tried and mixed; the latter two start from
    an exact GP of the labels. Of fewer rows it is a sparse GP and a logistic regression; of fewer than
    thirty, or in two to ten seconds, the exact GP and that. As a GPflow model, the exact GP predicts
    labels as if they were numbers; probabilities are the classifier's. Skewed inputs are taken on another
    scale, each on its own, where probabilities by an exact GP of the labels are better for rows left out, by
    more than a standard error (`warp`; in five seconds and more).

    Attributes beyond the regressor's: `classes_`.

    >>> y = np.where(Y[:, 0] > 0, "up", "down")
    >>> classifier = gd.estimators.DeepGPClassifier(model="svgp", steps=5, random_state=0).fit(X, y)
    >>> classifier.classes_, classifier.predict_proba(X).shape
    (array(['down', 'up'], dtype='<U4'), (20, 2))
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DeepGPClassifier:
        """
        :param X: inputs [N, D], finite; an array or a table.
        :param y: labels [N], of any kind.
        :param sample_weight: how many observations each row is, at least 0, [N].
        :raises ValueError: for data or parameters that cannot work.
        """
        with self._all_or_nothing() as before:
            X, y = checked_data(self, X, y)
            y = column_or_1d(y, warn=True)
            check_labels(y)
            encoder = LabelEncoder().fit(y)
            self.classes_ = encoder.classes_
            weights = checked_weights(sample_weight, X)
            counted = np.ones(len(y), bool) if weights is None else weights > 0
            if len(np.unique(y[counted])) < 2:
                raise ValueError(
                    f"y: expected at least two classes with weight above zero, got one class:"
                    f" {y[counted][:1].tolist() or 'none'}."
                )
            codes = encoder.transform(y).astype(np.float64)[:, None]
            self._fit(X, codes, weights, len(self.classes_), before)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, [N]."""
        most_probable = np.argmax(self.predict_proba(X), axis=1)
        labels: np.ndarray = self.classes_[most_probable]
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes [N, C], in the order of `classes_`."""
        inputs = self._inputs(X)
        probabilities = sum(
            weight * member.class_probabilities(inputs)
            for weight, member in zip(self.weights_, self.members_, strict=True)
        )
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities [N, C]."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """
        Log probability of the labels, [N].

        :raises ValueError: for labels that the fit had not, or not one a row.
        """
        check_is_fitted(self)
        check_unmasked(y, "y")
        y = column_or_1d(y)
        check_consistent_length(X, y)
        known = {label: column for column, label in enumerate(self.classes_.tolist())}
        columns = np.array([known.get(label, -1) for label in y.tolist()])
        if (columns < 0).any():
            raise ValueError(
                f"y: expected labels among {list(self.classes_)}, got {y[columns < 0][0]!r}."
            )
        return np.take_along_axis(self.predict_log_proba(X), columns[:, None], axis=1)[:, 0]

    def _likelihood(self) -> str:
        expected = "bernoulli" if len(self.classes_) == 2 else "softmax"
        if self.likelihood not in (None, expected):
            raise ValueError(
                f"likelihood: expected {expected!r} for {len(self.classes_)} classes, got"
                f" {self.likelihood!r}."
            )
        return expected

    def _is_classifier(self) -> bool:
        return True
