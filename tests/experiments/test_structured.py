from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpflow_deep import posteriors
from gpflow_deep.posteriors.base import HIDDEN_SCALE
from gpflow_deep.presets import Settings, get

SETTINGS = Settings(num_layers=3, hidden_dim=2, num_inducing=7, likelihood_variance=0.02)


@pytest.mark.parametrize(
    "name, posterior, num_layers",
    [
        ("svgp", posteriors.MeanField, 1),
        ("mean-field", posteriors.MeanField, 3),
        ("stripes-and-arrow", posteriors.StripesAndArrow, 3),
        ("fully-coupled", posteriors.FullyCoupled, 3),
    ],
)
@pytest.mark.parametrize("scale", [HIDDEN_SCALE, 1e-5])
def test_models_start_as_the_paper_says(
    name: str, posterior: type, num_layers: int, scale: float
) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 4)), rng.normal(size=(30, 1))
    registered = get(name)
    settings = SETTINGS if scale == HIDDEN_SCALE else replace(SETTINGS, hidden_scale=scale)
    model = registered.build(X, Y, registered.settings(settings), 0)
    assert isinstance(model.inducing_posterior, posterior)
    assert len(model.layers) == num_layers
    assert model.num_data == 30
    assert model.likelihood.variance.numpy() == pytest.approx(0.02)
    for layer in model.layers[:-1]:
        assert layer.num_latent_gps == 2
        assert not layer.kernel.variance.trainable
    assert model.layers[-1].kernel.variance.trainable

    mean, factor = (np.asarray(part) for part in model.inducing_posterior.dense())
    num_output = 7
    expected = np.full(len(mean), scale)
    expected[-num_output:] = 1.0
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(factor, np.diag(expected), rtol=1e-10, atol=1e-15)
