"""
Tables for the panel that no data folder is needed for, each with one thing that real tables have: few rows,
many idle inputs, jumps, noise that varies, wild or skewed or two-valued errors, counts, categories, a line.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

Table = tuple[np.ndarray, np.ndarray]
Random = np.random.Generator


def diabetes(rng: Random) -> Table:
    """442 patients, ten inputs, mostly noise."""
    return datasets.load_diabetes(return_X_y=True)


def friedman(rng: Random) -> Table:
    """Friedman's first function: smooth, five of ten inputs idle."""
    return datasets.make_friedman1(1000, noise=1.0, random_state=int(rng.integers(2**31)))


def few_rows(rng: Random) -> Table:
    """A hundred rows of a smooth function of three inputs."""
    X = rng.uniform(-1, 1, [100, 3])
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=100)


def idle_inputs(rng: Random) -> Table:
    """Forty inputs, of which four count."""
    X = rng.normal(size=[500, 40])
    f = np.tanh(X[:, 0] + X[:, 1]) + 0.5 * X[:, 2] * X[:, 3]
    return X, f + 0.2 * rng.normal(size=500)


def jumps(rng: Random) -> Table:
    """Constant on boxes: what trees are made for."""
    X = rng.uniform(size=[2000, 5])
    f = 2.0 * (X[:, 0] > 0.3) + (X[:, 1] > 0.7) * (X[:, 2] > 0.4) - 1.5 * (X[:, 3] > X[:, 0])
    return X, f + 0.1 * rng.normal(size=2000)


def varying_noise(rng: Random) -> Table:
    """Noise whose deviation runs from 0.02 to 0.5 with an input."""
    X = rng.uniform(-1, 1, [1500, 3])
    sd = 0.02 + 0.24 * (1 + np.sin(3 * X[:, 1]))
    return X, np.sin(4 * X[:, 0]) + X[:, 2] ** 2 + sd * rng.normal(size=1500)


def wild_errors(rng: Random) -> Table:
    """Errors with two degrees of freedom."""
    X = rng.normal(size=[1000, 4])
    return X, X[:, 0] * X[:, 1] + np.cos(2 * X[:, 2]) + 0.2 * rng.standard_t(2, size=1000)


def skewed(rng: Random) -> Table:
    """The exponential of a smooth function, errors in proportion: prices, durations."""
    X = rng.normal(size=[1500, 6])
    log = X[:, 0] + 0.5 * np.sin(2 * X[:, 1]) + 0.5 * X[:, 2] * (X[:, 3] > 0)
    return X, np.exp(log + 0.3 * rng.normal(size=1500))


def counts(rng: Random) -> Table:
    """Whole numbers, Poisson, means from a half to twenty."""
    X = rng.uniform(-1, 1, [1500, 4])
    rate = np.exp(1.2 + 1.2 * np.sin(3 * X[:, 0]) + 0.6 * X[:, 1] * X[:, 2])
    return X, rng.poisson(rate).astype(float)


def two_branches(rng: Random) -> Table:
    """One of two values for the same inputs, by a coin."""
    X = rng.uniform(-1, 1, [1500, 2])
    branch = rng.choice([-1.0, 1.0], size=1500)
    return X, branch * (1 + X[:, 0]) + 0.5 * np.sin(4 * X[:, 1]) + 0.1 * rng.normal(size=1500)


def categories(rng: Random) -> Table:
    """A slope and a level of each of twelve categories, one-hot, beside two numbers."""
    group = rng.integers(12, size=1500)
    X = rng.normal(size=[1500, 2])
    level, slope = rng.normal(size=12), rng.normal(size=12)
    y = level[group] + slope[group] * X[:, 0] + np.sin(2 * X[:, 1]) + 0.2 * rng.normal(size=1500)
    return np.concatenate([np.eye(12)[group], X], axis=1), y


def rough(rng: Random) -> Table:
    """A curve whose frequency grows along its one input."""
    X = np.sort(rng.uniform(size=[800, 1]), axis=0)
    return X, np.sin(2 + 40 * X[:, 0] ** 3) + 0.05 * rng.normal(size=800)


def linear(rng: Random) -> Table:
    """A hundred rows to train on, twenty inputs: a linear function, and as much noise."""
    X = rng.normal(size=[125, 20])
    return X, X @ rng.normal(size=20) / np.sqrt(20) + rng.normal(size=125)


SETS: dict[str, Callable[[Random], Table]] = {
    f"made-{make.__name__.replace('_', '-')}": make
    for make in (
        *(diabetes, friedman, few_rows, idle_inputs, jumps, varying_noise, wild_errors, skewed),
        *(counts, two_branches, categories, rough, linear),
    )
}


def split(name: str, number: int) -> tuple[np.ndarray, ...]:
    """Training and test rows of a set: X, y, X, y; a fifth for the test."""
    X, y = SETS[name](np.random.default_rng(number))
    train_X, test_X, train_y, test_y = train_test_split(X, y, test_size=0.2, random_state=number)
    return train_X, train_y, test_X, test_y
