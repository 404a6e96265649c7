"""The exact GP's choices: what kernel, and which inputs count."""

import gpflow
import numpy as np
import pytest

from gpflow_deep.estimators.evidence import fit_exact
from gpflow_deep.estimators.rows import Rows
from gpflow_deep.presets import recommended


def fit(X, Y):
    rows = Rows(X, (Y - Y.mean()) / Y.std(), np.ones(len(X)))
    model, settings, _ = fit_exact("gp", rows, recommended("gp", *X.shape), seed=0)
    return model, settings.kernel


@pytest.mark.parametrize(
    "name, kernel", [("rbf", gpflow.kernels.RBF), ("matern32", gpflow.kernels.Matern32)]
)
def test_kernel_is_the_one_that_drew_the_function(name, kernel):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=[300, 2])
    root = np.linalg.cholesky(kernel(lengthscales=0.2)(X).numpy() + 1e-8 * np.eye(300))
    _, found = fit(X, root @ rng.normal(size=[300, 1]) + 0.05 * rng.normal(size=[300, 1]))
    assert found == name


@pytest.mark.parametrize("seed", [0, 1])
def test_two_inputs_of_thirty_are_found(seed):
    """Neither is all of it noise, nor is the noise taken for a function of the other inputs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=[300, 30])
    Y = np.sin(2.0 * X[:, :1]) * X[:, 1:2]
    noise = 0.1 / Y.std()
    model, _ = fit(X, Y + 0.1 * rng.normal(size=Y.shape))
    assert 0.5 * noise**2 < float(model.likelihood.variance.numpy()) < 2.0 * noise**2
    first, *others = np.split(model.kernel.lengthscales.numpy(), [2])
    assert np.max(first) < 0.3 * np.min(others)


def test_function_without_noise_is_fitted():
    """Its noise ends at the floor."""
    X = np.linspace(-1.0, 1.0, 60)[:, None]
    model, _ = fit(X, np.sin(3.0 * X))
    assert float(model.likelihood.variance.numpy()) < 1e-4
