"""Bayesian neural networks by name."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from gpflow_deep import presets
from gpflow_deep.initialisation import inducing_data
from gpflow_deep.layers.bayesian import Activation, BayesianDense
from gpflow_deep.models import GlobalInducingBNN
from gpflow_deep.posteriors import FactorisedWeights, GlobalInducingWeights

NAMES = [
    f"bnn-{posterior}-{prior}"
    for posterior in ("factorised", "local-inducing", "factorised-to-global", "global-inducing")
    for prior in ("neal", "standard", "scale")
]


@pytest.mark.parametrize("name", NAMES)
def test_networks_by_name(name: str) -> None:
    assert name in presets.names()
    assert presets.get(name).description.startswith("A ReLU network with")
    rng = np.random.default_rng(0)
    X = rng.standard_normal([20, 2])
    Y = np.sin(X[:, :1])
    settings = presets.Settings(num_layers=3, hidden_dim=4, num_inducing=6, num_samples=2)
    model = presets.build(name, X, Y, settings, seed=1)
    assert len(model.inducing_posteriors) == 3
    assert np.isfinite(model.elbo((X, Y)))
    assert np.isfinite(model.predict_log_density((X, Y))).all()


def test_no_kernel() -> None:
    X = np.zeros([4, 2])
    with pytest.raises(ValueError, match="kernel: expected none with a network .*'matern12'"):
        presets.build("bnn-factorised-neal", X, X, presets.Settings(kernel="matern12"))


def test_the_noise_moves_by_its_logarithm_ten_times_as_fast() -> None:
    X = np.random.default_rng(0).standard_normal([20, 2])
    settings = presets.Settings(hidden_dim=4, likelihood_variance=0.05, noise_floor=1e-4)
    variance = presets.build("bnn-factorised-neal", X, X[:, :1], settings).likelihood.variance
    np.testing.assert_allclose(variance, 0.05, rtol=1e-6)
    variance.unconstrained_variable.assign_sub(0.1)
    np.testing.assert_allclose(variance - 1e-4, (0.05 - 1e-4) / np.e, rtol=1e-6)


@pytest.mark.parametrize("prior", ["neal", "standard", "scale"])
def test_local_inducing_points_start_with_the_noise_of_their_residuals(prior: str) -> None:
    """Else the first gradients, of a bound of -3000 a point, keep Adam from moving for thousands of steps."""
    X = np.random.default_rng(0).standard_normal([200, 6])
    Y = np.sin(X[:, :1])
    settings = presets.Settings(num_layers=3, hidden_dim=50, likelihood_variance=0.05)
    model = presets.build(f"bnn-local-inducing-{prior}", X, Y, settings)
    mean, variance = model.predict_f(X)
    np.testing.assert_allclose(
        model.likelihood.variance, np.mean((Y - mean) ** 2 + variance), rtol=1e-6
    )
    assert model.elbo((X, Y)) / len(X) > -15.0


def test_factorised_below_a_global_inducing_layer() -> None:
    """Its bound is that of the model made by hand, from the same inducing data."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal([30, 2])
    Y = np.sin(X[:, :1])
    settings = presets.Settings(num_layers=3, hidden_dim=4, num_inducing=10, num_samples=3)
    model = presets.build("bnn-factorised-to-global-neal", X, Y, settings)
    kinds = [type(q) for q in model.inducing_posteriors]
    assert kinds == [FactorisedWeights, FactorisedWeights, GlobalInducingWeights]
    U0, V = inducing_data(X, Y, 10, seed=0)
    by_hand = GlobalInducingBNN(
        [
            BayesianDense(4, "neal"),
            Activation("relu"),
            BayesianDense(4, "neal"),
            Activation("relu"),
            BayesianDense(1, "neal"),
        ],
        model.likelihood,
        posterior=[
            *[FactorisedWeights] * 2,
            partial(GlobalInducingWeights, precision="separate"),
        ],
        inducing_inputs=U0,
        pseudo_outputs=V,
        num_samples=3,
        num_data=len(X),
    )
    noise = model.draw_noise(len(X), seed=1)
    bounds = [m.maximum_log_likelihood_objective((X, Y), noise=noise) for m in (model, by_hand)]
    np.testing.assert_allclose(*bounds, rtol=1e-12)
