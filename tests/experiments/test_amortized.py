from __future__ import annotations

import numpy as np
import pytest

from gpflow_deep import metrics, posteriors
from gpflow_deep.experiments.scores import standardised_scores
from gpflow_deep.models import AmortizedDeepGP, DeepSigmaPointProcess
from gpflow_deep.presets import Settings, get

SETTINGS = Settings(
    num_layers=3, hidden_dim=8, num_inducing=6, num_samples=4, likelihood_variance=0.02
)


@pytest.mark.parametrize(
    ("name", "num_layers", "predictive"),
    [
        ("ar1", 3, False),
        ("ar2", 3, False),
        ("ar2p", 3, False),
        ("ar2pp", 3, True),
        ("sgp-avi", 1, False),
        ("idsgp", 1, False),
        ("dspp", 3, True),
        ("ppgpr", 1, True),
        ("solve-gp", 1, False),
    ],
)
def test_models_are_what_their_names_say(name: str, num_layers: int, predictive: bool) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 4)), rng.normal(size=(30, 1))
    registered = get(name)
    model = registered.build(X, Y, registered.settings(SETTINGS), 0)
    widths = {1: [1], 3: [8, 2, 1]}[num_layers]
    assert [layer.num_latent_gps for layer in model.layers] == widths
    assert [layer.num_inducing for layer in model.layers] == [6, 3, 3][:num_layers]
    assert model.predictive_objective == predictive
    assert model.num_data == 30
    assert model.likelihood.variance.numpy() == pytest.approx(0.02)
    assert np.isfinite(model.training_loss((X, Y)))
    if name.startswith("ar"):
        assert isinstance(model, AmortizedDeepGP)
        assert model.amortization == name.upper()[:4]
        assert model.num_samples == (1 if name == "ar1" else 4)
    if name in ("dspp", "ppgpr"):
        assert isinstance(model, DeepSigmaPointProcess)
        assert model.sites.num_sites == (4 if name == "dspp" else 1)
    if name == "solve-gp":
        assert isinstance(model.inducing_posterior, posteriors.Orthogonal)
        assert model.inducing_posterior.num_parameters == 6 + 2 * 6


def test_scores_of_standardised_targets() -> None:
    """Those of the scaled targets, by the plain definitions."""
    rng = np.random.default_rng(0)
    Y, scale = 5.0 + 3.0 * rng.normal(size=(20, 1)), np.array([3.0])
    means, variances = Y + rng.normal(size=(4, 20, 1)), rng.uniform(0.5, 2.0, size=(4, 20, 1))
    mixture = means, variances, np.log([0.1, 0.2, 0.3, 0.4])
    scores = standardised_scores(Y, mixture, scale)
    mean, _ = metrics.mixture_moments(*mixture)
    log_density = np.mean(metrics.log_density(Y, *mixture))
    assert scores["standardised_nll"] == pytest.approx(-log_density - np.log(3.0))
    assert scores["standardised_rmse"] == pytest.approx(metrics.rmse(Y, mean) / 3.0)
    assert scores["standardised_crps"] == pytest.approx(np.mean(metrics.crps(Y, *mixture)) / 3.0)


def test_the_published_crps_is_too_large_for_a_calibrated_gaussian() -> None:
    """0.6515 standard deviations for 0.5642."""
    Y = np.random.default_rng(0).normal(size=(200_000, 1))
    mixture = np.zeros([1, len(Y), 1]), np.ones([1, len(Y), 1]), np.zeros(1)
    scores = standardised_scores(Y, mixture, np.ones(1))
    assert scores["standardised_crps"] == pytest.approx(0.5642, abs=3e-3)
    assert scores["standardised_crps_as_published"] == pytest.approx(0.6515, abs=3e-3)
