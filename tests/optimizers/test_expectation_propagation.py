"""Updates of factors that cannot be made, and what changes between them."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.optimizers import ExpectationPropagation, StochasticEP

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (30, 1))
Y = np.sin(3.0 * X) + 0.3 * RNG.normal(size=X.shape)


def make(likelihood: Any) -> gd.models.FITCEPDeepGP:
    layers = gd.layers.build_separate_layers(X, hidden_dims=(), num_inducing=5)
    return gd.models.FITCEPDeepGP(layers, likelihood, num_data=len(X))


def test_a_cavity_that_is_no_gaussian_is_a_rejected_update() -> None:
    model = make(gpflow.likelihoods.StudentT(0.1))
    ep = ExpectationPropagation(model, (X, Y))
    assert ep.sweep() == 0
    sites = [value.numpy() for value in ep.sites[0]]
    assert ep.sweep() == 1
    changed = [(value.numpy() != old).any(axis=(1, -1)) for value, old in zip(ep.sites[0], sites)]
    assert changed[1].sum() == len(X) - 1
    assert np.isfinite(model.predict_f(X)).all()


def test_a_batch_without_moments_is_a_rejected_update(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(gpflow.likelihoods.Gaussian(0.1))
    sep = StochasticEP(model)
    log_Z = sep._log_Z
    monkeypatch.setattr(sep, "_log_Z", lambda *args: np.nan * log_Z(*args))
    before = [value.numpy() for value in sep._old()[0]]
    (share,) = sep.step((X, Y))
    assert share.tolist() == [0.0]
    for value, old in zip(sep._old()[0], before):
        np.testing.assert_allclose(value, old, atol=1e-10)


def test_number_of_factors_is_the_present_one() -> None:
    model = make(gpflow.likelihoods.Gaussian(0.1))
    sep = StochasticEP(model)
    sep.propose((X, Y))
    model.num_data = 3000
    (natural,), (expected,) = sep.propose((X, Y)), StochasticEP(model).propose((X, Y))
    np.testing.assert_array_equal(natural.precision, expected.precision)


def test_number_of_factors_may_be_a_variable() -> None:
    model = make(gpflow.likelihoods.Gaussian(0.1))
    model.num_data = 3000
    (expected,) = StochasticEP(model).propose((X, Y))
    model.num_data = tf.Variable(3000, trainable=False)
    (natural,) = StochasticEP(model).propose((X, Y))
    np.testing.assert_array_equal(natural.precision, expected.precision)
