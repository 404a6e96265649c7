"""Bayesian neural networks by name."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_deep import presets

NAMES = [
    f"bnn-{posterior}-{prior}"
    for posterior in ("factorised", "local-inducing", "global-inducing")
    for prior in ("neal", "standard", "scale")
]


@pytest.mark.parametrize("name", NAMES)
def test_networks_by_name(name: str) -> None:
    assert name in presets.names()
    rng = np.random.default_rng(0)
    X = rng.standard_normal([20, 2])
    Y = np.sin(X[:, :1])
    settings = presets.Settings(num_layers=3, hidden_dim=4, num_inducing=6, num_samples=2)
    model = presets.build(name, X, Y, settings, seed=1)
    assert len(model.inducing_posteriors) == 3
    assert np.isfinite(model.elbo((X, Y)))
    assert np.isfinite(model.predict_log_density((X, Y))).all()


@pytest.mark.parametrize("name", NAMES[::3])
def test_the_noise_moves_at_ten_times_the_pace_of_the_rest(name: str) -> None:
    X = np.linspace(-1.0, 1.0, 10)[:, None]
    settings = presets.Settings(num_layers=2, hidden_dim=3, num_inducing=4, noise_floor=1e-4)
    variance = presets.build(name, X, X, settings, seed=0).likelihood.variance
    before = float(variance.numpy()) - 1e-4
    variance.unconstrained_variable.assign_sub(0.1)
    np.testing.assert_allclose(float(variance.numpy()) - 1e-4, before / np.e, rtol=1e-6)
    assert before == pytest.approx(settings.likelihood_variance - 1e-4, rel=1e-6)
