"""Predictive mixtures of few components whose draws were learned."""

from __future__ import annotations

import copy
from typing import Any

import gpflow
import numpy as np
import pytest

import gpflow_deep as gd
from gpflow_deep.posteriors import DeepGPPosterior, MeanField

rng = np.random.default_rng(0)
X, XNEW = rng.uniform(-2.0, 2.0, [60, 2]), rng.uniform(-2.0, 2.0, [40, 2])
Y, YNEW = (np.sin(x[:, :1] * x[:, 1:]) for x in (X, XNEW))


def deep(**settings: Any) -> gd.models.DeepGP:
    """Hidden functions of which there is much to draw."""
    rng = np.random.default_rng(1)  # of its own: a test is the same in any order
    layers = gd.layers.build_layers(X, hidden_dims=(2, 2), num_inducing=12)
    model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.02), MeanField, **settings)
    for q_mu, q_sqrt in zip(model.inducing_posterior.q_mu, model.inducing_posterior.q_sqrt):
        q_mu.assign(rng.normal(size=q_mu.shape))
        q_sqrt.assign(np.broadcast_to(0.3 * np.eye(12), q_sqrt.shape))
    return model


def difference(posterior: DeepGPPosterior, many: np.ndarray) -> float:
    """Of held-out log densities."""
    found = posterior.predict_log_density((XNEW, YNEW))
    return float(np.sqrt(np.mean(np.square(found - many))))


def test_few_learned_draws_predict_as_many_do() -> None:
    model = deep(num_prediction_samples=4096)
    many = model.predict_log_density((XNEW, YNEW)).numpy()
    model.num_prediction_samples = 6
    posterior = model.posterior()
    before = difference(posterior, many)
    told = posterior.condense((X, Y), num_components=6, steps=150)
    assert 0.0 < told < 0.5 * before
    assert difference(posterior, many) < 0.7 * before
    # Compiled from the second time on, and the same.
    first, second = (posterior.predict_y(XNEW) for _ in range(2))
    for a, b in zip(first, second):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    mixture = posterior.predict_f_mixture(XNEW)
    assert mixture.means.shape == (6, 40, 1)
    np.testing.assert_allclose(mixture.means.numpy().mean(0), posterior.predict_f(XNEW)[0])
    np.testing.assert_array_equal(
        copy.deepcopy(posterior).predict_f(XNEW)[0], posterior.predict_f(XNEW)[0]
    )
    # What a caller asks for by name is as before; and so is all after the cache was computed again.
    assert posterior.predict_f_mixture(XNEW, num_samples=9).means.shape == (9, 40, 1)
    posterior.update_cache()
    assert difference(posterior, many) == pytest.approx(before)


def test_the_same_seed_learns_the_same() -> None:
    model = deep()
    draws = []
    for seed in (0, 0, 1):
        posterior = model.posterior()
        posterior.condense((X, Y), 3, num_reference=32, steps=5, seed=seed)
        draws.append(posterior.predict_f(XNEW)[0].numpy())
    np.testing.assert_array_equal(draws[0], draws[1])
    assert np.ptp(draws[0] - draws[2]) > 0.0


def test_classes() -> None:
    layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=12)
    model = gd.models.DeepGP(layers, gpflow.likelihoods.Bernoulli())
    posterior = model.posterior()
    assert posterior.condense((X, np.float64(Y > 0.0)), 4, num_reference=64, steps=5) >= 0.0
    assert posterior.predict_y(XNEW)[0].shape == (40, 1)


def test_bad_input() -> None:
    posterior = deep().posterior()
    for arguments, message in [
        ({"num_components": 0}, "num_components: expected"),
        ({"num_reference": 1.5}, "num_reference: expected"),
        ({"steps": 0}, "steps: expected"),
        ({"seed": -1}, "seed: expected"),
        ({"data": (X[:0], Y[:0])}, "data: expected inputs"),
        ({"data": (X, Y[:9])}, "data: expected inputs"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            posterior.condense(**{"data": (X, Y), **arguments})
    with pytest.raises(TypeError, match="data: expected a pair"):
        posterior.condense(X)
    one = gd.layers.build_layers(X, hidden_dims=(), num_inducing=5)
    for model in (
        gd.models.DeepGP(one, gpflow.likelihoods.Gaussian()),
        deep(num_sites=3),
    ):
        with pytest.raises(TypeError, match="condense: expected the posterior of a DeepGP of"):
            model.posterior().condense((X, Y))
