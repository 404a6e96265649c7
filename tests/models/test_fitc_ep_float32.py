"""FITC-EP in single precision: trainings on data almost without noise, and gradients over many points."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.training import fit

RNG = np.random.default_rng(0)
GRID = np.linspace(-3.0, 3.0, 60)[:, None]
COLUMN = RNG.normal(size=(60, 1))
PLANE = RNG.normal(size=(60, 2))
DATA = {
    "a sine on a grid": (GRID, np.sin(2.0 * GRID)),
    "targets 0 and 1": (PLANE, (PLANE[:, :1] > 0).astype(float)),
    "collinear columns": (np.hstack([COLUMN, 2.0 * COLUMN, -COLUMN]), np.sin(COLUMN)),
}


def _model(X: np.ndarray, noise: float, num_inducing: int = 10) -> gd.models.FITCEPDeepGP:
    layers = gd.layers.build_separate_layers(X, (1,), num_inducing=num_inducing)
    return gd.models.FITCEPDeepGP(layers, gpflow.likelihoods.Gaussian(noise))


@pytest.mark.parametrize("name", DATA)
def test_trainings_run_to_their_end(name: str) -> None:
    """The likelihood's noise falls to its lower bound."""
    gpflow.config.set_default_float(np.float32)
    model = _model(DATA[name][0], 1e-4)
    losses = fit(
        model, DATA[name], steps=200, batch_size=None, learning_rate=0.05, progress=False
    ).history["loss"]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    mean, variance = model.predict_y(DATA[name][0])
    assert np.isfinite(mean).all() and (variance.numpy() > 0).all()


@pytest.mark.parametrize(
    "kernel",
    [
        lambda *_: gpflow.kernels.SquaredExponential() + gpflow.kernels.Linear(),
        lambda *_: gpflow.kernels.SquaredExponential() * gpflow.kernels.Cosine(lengthscales=3.0),
    ],
)
def test_confident_factors_under_any_kernel(kernel: Any) -> None:
    """What cancels down to the variances is added up in float64, whatever the kernel."""
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (100, 1))
    energies = []
    for float_type in (np.float64, np.float32):
        gpflow.config.set_default_float(float_type)
        layers = gd.layers.build_separate_layers(X, (2,), num_inducing=20, kernel_factory=kernel)
        model = gd.models.FITCEPDeepGP(layers, gpflow.likelihoods.Gaussian(1e-3), num_data=100)
        q = model.inducing_posterior
        for index, layer in enumerate(layers):
            parts = layer.inducing_variable.inducing_variables
            values = np.sin(3.0 * np.stack([part.Z[:, 0] for part in parts]))
            q.precision_sqrt[index].assign(100.0 * np.tile(np.eye(20), (len(parts), 1, 1)))
            q.targets[index].assign(100.0 * values)
        energies.append(float(model.energy((X, np.sin(3.0 * X)))))
        assert (model.predict_f(X)[1].numpy() >= 0.0).all()
    np.testing.assert_allclose(energies[1], energies[0], rtol=0.02)


def test_gradients_over_many_points() -> None:
    """Sums of as many terms, of either sign, as float32 has digits for in none of its steps."""
    X = RNG.normal(size=(200_000, 2))
    data = X, np.sin(X[:, :1]) + 0.1 * RNG.normal(size=(len(X), 1))
    slopes: dict[type, list[np.ndarray]] = {}
    for float_type in (np.float64, np.float32):
        gpflow.config.set_default_float(float_type)
        model = _model(X[:500], 0.05, num_inducing=6)
        with tf.GradientTape() as tape:
            energy = model.energy(data)
        gradients = tape.gradient(energy, model.trainable_variables)
        slopes[float_type] = [tf.convert_to_tensor(g).numpy() for g in gradients]
    for exact, single in zip(slopes[np.float64], slopes[np.float32], strict=True):
        np.testing.assert_allclose(single, exact, rtol=1e-3, atol=1e-3 * np.abs(exact).max())
