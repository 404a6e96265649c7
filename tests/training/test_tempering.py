"""The weight of the divergences in training: by a schedule, which goes by the steps or by the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from tests.training.models import (
    TERM,
    Killed,
    N,
    WithTerm,
    assert_same,
    kill_at,
    make_data,
    make_svgp,
    quiet_fit,
)


def _network() -> gd.models.GlobalInducingBNN:
    X, Y = make_data()
    layers = [gd.layers.BayesianDense(3), gd.layers.bayesian.Activation("relu")]
    return gd.models.GlobalInducingBNN(
        [*layers, gd.layers.BayesianDense(1)],
        gpflow.likelihoods.Gaussian(0.1),
        inducing_inputs=X[:4],
        pseudo_outputs=Y[:4],
        num_samples=2,
        num_data=N,
    )


def _deep_gp() -> gd.models.DeepGP:
    X, _ = make_data()
    layers = gd.layers.build_layers(X, hidden_dims=(1,), output_dim=1, num_inducing=4, seed=0)
    return gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_samples=2, num_data=N)


def _sigma_point() -> gd.models.DeepSigmaPointProcess:
    X, _ = make_data()
    layers = gd.layers.build_layers(X, hidden_dims=(1,), output_dim=1, num_inducing=4, seed=0)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gd.models.DeepSigmaPointProcess(
        layers, likelihood, num_sites=3, predictive_objective=0.5, num_data=N
    )


@pytest.mark.parametrize("make", [_network, _deep_gp, _sigma_point])
def test_each_step_has_the_weight_of_the_schedule(make: Any) -> None:
    data = tuple(tf.constant(part) for part in make_data())
    model = make()
    tempering = gd.training.Tempering(steps=4, start=0.2)
    settings: dict[str, Any] = dict(steps=6, learning_rate=1e-12, batch_size=None, seed=3)
    losses = quiet_fit(model, tempering=tempering, **settings).history["loss"]

    def loss(step: int, weight: float) -> float:
        noise = model.draw_noise(N, seed=[3, step])
        bound = model.maximum_log_likelihood_objective(data, noise=noise, tempering=weight)
        return float(-(bound + model.log_prior_density()))

    weights = [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]
    np.testing.assert_allclose(
        losses, [loss(step, weight) for step, weight in enumerate(weights)], rtol=1e-6
    )
    # What is weighted is the divergence alone, of which the model has a weight of its own.
    by_hand = [loss(0, 0.0) + weight * (loss(0, 1.0) - loss(0, 0.0)) for weight in weights]
    np.testing.assert_allclose([loss(0, weight) for weight in weights], by_hand)
    assert loss(0, 1.0) > loss(0, 0.5) + 1e-3


def test_a_killed_run_goes_on_to_the_same_result(tmp_path: Path) -> None:
    settings: dict[str, Any] = dict(
        steps=20, learning_rate=0.01, tempering=gd.training.Tempering(15)
    )
    whole, resumed = _network(), _network()
    quiet_fit(whole, **settings)
    saved: dict[str, Any] = dict(checkpoint_dir=tmp_path, checkpoint_every=5)
    with pytest.raises(Killed):
        quiet_fit(_network(), callback=kill_at(8), **saved, **settings)
    quiet_fit(resumed, **saved, **settings)
    assert_same(whole, resumed)
    with pytest.raises(ValueError, match=r"tempering was 'Tempering\(steps=15, start=0.1\)'"):
        quiet_fit(_network(), **saved, **settings | {"tempering": None})


def test_in_limited_time_the_weight_rises_by_the_clock() -> None:
    data = tuple(tf.constant(part) for part in make_data())
    model, steps = _network(), 1_000_000
    settings: dict[str, Any] = dict(learning_rate=1e-12, batch_size=None, time_limit=6.0)
    tempering = gd.training.Tempering(steps)
    losses = quiet_fit(model, steps=steps, tempering=tempering, **settings).history["loss"]
    assert len(losses) < 0.1 * steps
    noise = model.draw_noise(N, seed=[0, len(losses) - 1])
    free, full = (
        -float(model.maximum_log_likelihood_objective(data, noise=noise, tempering=weight))
        for weight in (0.0, 1.0)
    )
    assert 0.5 < (losses[-1] - free) / (full - free) <= 1.0


def test_a_bound_of_ones_own_is_maximised_and_not_tempered() -> None:
    model, plain = _deep_gp(), _deep_gp()
    model.__class__ = WithTerm
    losses = [quiet_fit(m, steps=3, learning_rate=0.1).history["loss"] for m in (model, plain)]
    # Which takes the draws of the step, as ours do, without being given them.
    np.testing.assert_allclose(losses[0] - TERM, losses[1], atol=1e-8)
    with pytest.raises(ValueError, match="tempering: expected None for WithTerm"):
        quiet_fit(model, tempering=gd.training.Tempering())


def test_what_cannot_be_tempered_is_refused() -> None:
    tempering = gd.training.Tempering()
    with pytest.raises(
        ValueError, match=r"tempering: expected None for SVGP, .* got Tempering\(steps"
    ):
        quiet_fit(make_svgp(), tempering=tempering)
    with pytest.raises(TypeError, match=r"tempering: expected .*Tempering, got float"):
        quiet_fit(_network(), tempering=0.5)
    with pytest.raises(ValueError, match=r"start: expected a number in \(0, 1\], got 0"):
        gd.training.Tempering(start=0)


def test_a_preset_is_tempered_by_its_settings() -> None:
    tempering = gd.presets.Settings(tempering_steps=7).training()["tempering"]
    assert repr(tempering) == "Tempering(steps=7, start=0.1)"
    assert "tempering" not in gd.presets.Settings().training()
    assert "tempering_steps" not in gd.presets.Settings().identity()
