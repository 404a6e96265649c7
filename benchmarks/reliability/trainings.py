"""Families on data that are hard, in both dtypes, by `fit` itself."""

from __future__ import annotations

from collections.abc import Iterator

import gpflow
import numpy as np
from gpflow.utilities import read_values

from gpflow_deep import presets, training
from gpflow_deep.presets import Settings

from .outcomes import FINE, SILENT, Case, Outcome


def _grid(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.linspace(-3.0, 3.0, n)[:, None]
    return X, np.sin(2.0 * X)


def _labels(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 2))
    return X, (X[:, :1] > 0).astype(float)


def _collinear(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    column = rng.normal(size=(n, 1))
    return np.hstack([column, 2.0 * column, -column]), np.sin(column)


def _duplicates(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.repeat(rng.normal(size=(max(2, n // 10), 2)), 10, axis=0)[:n]
    return X, np.sin(X[:, :1]) + rng.normal(size=(len(X), 1))


def _outliers(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X, Y = rng.normal(size=(n, 2)), rng.standard_t(1.0, size=(n, 1))
    return X, Y / np.abs(Y).max() * 20.0


def _constant(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 3))
    X[:, 1] = 1.0
    return X, X[:, :1] ** 2


def _unscaled(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 2)) * [1e4, 1e-3] + [1e5, 0.0]
    return X, 1e4 * np.sin(X[:, :1] / 1e4)


def _wide(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(n, 30))
    return X, X[:, :1] + 0.1 * rng.normal(size=(n, 1))


DATA = {
    function.__name__.removeprefix("_"): function
    for function in (
        _grid,
        _labels,
        _collinear,
        _duplicates,
        _outliers,
        _constant,
        _unscaled,
        _wide,
    )
}


def trainings() -> Iterator[Case]:
    """Families x data sets x dtypes, over and over with other seeds and step sizes."""
    # Papers' models are families with other settings, and exact GPs are not trained by steps.
    families = [name for name in presets.names() if presets.get(name).defaults is None]
    families = [name for name in families if name not in ("gp", "rough-gp")]
    seed = 0
    while True:
        for data in DATA:
            for family in families:
                for dtype in ("float64", "float32"):
                    yield {"family": family, "data": data, "dtype": dtype, "seed": seed}
        seed += 1


def train(case: Case, steps: int = 60) -> Outcome:
    rng = np.random.default_rng(case["seed"])
    X, Y = DATA[case["data"]](rng, int(rng.integers(12, 80)))
    settings = Settings(
        num_layers=int(rng.choice([1, 2, 2, 3])),
        hidden_dim=2,
        num_inducing=int(min(8, len(X))),
        num_samples=2,
        likelihood_variance=float(10.0 ** rng.uniform(-4, 0)),
    )
    with gpflow.config.as_context(gpflow.config.Config(float=getattr(np, case["dtype"]))):
        X, Y = X.astype(case["dtype"]), Y.astype(case["dtype"])
        model = presets.build(case["family"], X, Y, settings, case["seed"])
        learning_rate = float(10.0 ** rng.uniform(-3, -0.5))
        result = training.fit(
            model,
            (X, Y),
            steps=steps,
            batch_size=32,
            learning_rate=learning_rate,
            seed=case["seed"],
            progress=False,
        )
        mean, variance = (np.asarray(part) for part in model.predict_y(X))
    values = [result.history["loss"], mean, variance, *map(np.asarray, read_values(model).values())]
    if not all(np.isfinite(value).all() for value in values) or (variance <= 0).any():
        return SILENT, "not finite, or a variance of zero"
    return FINE, ""
