"""Predictive posteriors whose calls are compiled, when the model's settings change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.estimators.weighted import WeightedLikelihood
from tests.models.contract import XNEW, X, Y, assert_close, randomise

LIKELIHOOD = gpflow.likelihoods.Gaussian(0.1)


def _mean_field(seed: int = 0) -> gd.models.DeepGP:
    layers = gd.layers.build_layers(X, (2,), 1, 5, seed=seed)
    return gd.models.DeepGP(layers, LIKELIHOOD, gd.posteriors.MeanField, num_prediction_samples=8)


def _sampled() -> gd.models.SampledDeepGP:
    layers = gd.layers.build_layers(X, (2,), 1, 5)
    return gd.models.SampledDeepGP(layers, LIKELIHOOD, num_prediction_samples=8)


def _stacked() -> gd.models.StackedDeepGP:
    above = gd.layers.build_layers(np.hstack([X, X])[:, :1], (), 1, 5)
    parts = [_mean_field(), gd.models.DeepGP(above, LIKELIHOOD, gd.posteriors.MeanField)]
    return gd.models.StackedDeepGP(parts, num_prediction_samples=8)


@pytest.mark.parametrize("build", [_mean_field, _sampled, _stacked])
def test_a_jitter_that_changes_is_that_of_what_was_compiled(build: Callable[[], Any]) -> None:
    model = build()
    randomise(model)
    posterior = model.posterior()
    before = [posterior.predict_y(XNEW) for _ in range(3)][-1]  # the third is compiled
    part = model.parts[0] if isinstance(model, gd.models.StackedDeepGP) else model
    part.covariance_jitter = 0.5
    after = posterior.predict_y(XNEW)
    assert_close(after, model.predict_y(XNEW))
    assert np.abs(after[1] - before[1]).max() > 1e-3


def test_products_in_single_precision_from_now_on() -> None:
    """In training; a prediction is the same to the bit, and is not compiled again."""
    model = _mean_field()
    randomise(model)
    posterior = model.posterior()
    before = [posterior.predict_y(XNEW) for _ in range(3)][-1]
    alone, noise = model.predict_y(XNEW), model.draw_noise(len(X), seed=[1, 2])
    bound, compiled = model.elbo((X, Y), noise), len(posterior._graphs.known)
    model.compute_dtype = "float32"
    np.testing.assert_array_equal(posterior.predict_y(XNEW), before)
    np.testing.assert_array_equal(model.predict_y(XNEW), alone)
    assert len(posterior._graphs.known) == compiled
    assert model.elbo((X, Y), noise) != bound
    assert_close(model.elbo((X, Y), noise), bound, rtol=1e-4)


def _number(value: float) -> tf.Tensor:
    return tf.constant(value, tf.float64)


def _with_tensor(variance: float) -> gpflow.likelihoods.Gaussian:
    likelihood = gpflow.likelihoods.Gaussian()
    likelihood.variance = _number(variance)
    return likelihood


class _OfTable(gpflow.likelihoods.Gaussian):
    """A user's, which looks its variance up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = {"variance": _number(0.1)}

    def _variance(self, X: tf.Tensor) -> tf.Tensor:
        return self.table["variance"]


@pytest.mark.parametrize(
    "likelihood, change",
    [
        (gpflow.likelihoods.StudentT, lambda own: setattr(own, "df", 10.0)),
        (
            lambda: gpflow.likelihoods.Ordinal(np.array([-0.5, 0.5])),
            lambda own: setattr(own, "bin_edges", np.array([-2.0, 0.1])),
        ),
        (gpflow.likelihoods.Poisson, lambda own: setattr(own, "invlink", tf.nn.softplus)),
        (
            gpflow.likelihoods.Gaussian,
            lambda own: setattr(own, "variance", gpflow.Parameter(3.0)),
        ),
        (
            lambda: WeightedLikelihood(gpflow.likelihoods.StudentT(), 1),
            lambda own: setattr(own.base, "df", 10.0),
        ),
        (lambda: _with_tensor(0.1), lambda own: setattr(own, "variance", _number(3.0))),
        (_OfTable, lambda own: own.table.update(variance=_number(3.0))),
    ],
    ids=["number", "array", "function", "parameter", "of a part", "tensor", "of a dictionary"],
)
def test_a_likelihood_that_changes_is_that_of_what_was_compiled(
    likelihood: Callable[[], Any], change: Callable[[Any], None]
) -> None:
    model = _mean_field()
    randomise(model)
    model.likelihood = likelihood()
    posterior = model.posterior()
    before = [posterior.predict_y(XNEW) for _ in range(3)][-1]
    change(model.likelihood)
    for _ in range(3):
        after = posterior.predict_y(XNEW)
        assert_close(after, model.predict_y(XNEW))
    assert np.abs(after[1] - before[1]).max() > 1e-3
    assert len(posterior._graphs.known) == 2  # and no more for the same values
