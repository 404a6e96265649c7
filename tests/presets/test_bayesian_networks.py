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
