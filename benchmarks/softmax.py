"""
What quasi-random nodes save where GPflow draws at random: the errors of one observation's expected log
density and probability under Softmax, and the time of the former with its gradient, beside GPflow's own.

    python benchmarks/softmax.py

Means and observed classes are drawn at random; the truth is by 65,536 other quasi-random nodes. One thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from harness import ENVIRONMENT, THREADS

# TensorFlow reads them on import.
os.environ.update(ENVIRONMENT, **dict.fromkeys(THREADS, "1"))

import gpflow
import numpy as np
import tensorflow as tf
from harness import measure
from scipy.stats import norm, qmc

import gpflow_deep as gd
from gpflow_deep.likelihoods.monte_carlo import nodes_of_seed

NUM_POINTS, NUM_SEEDS = 60, 8
BATCH = 2560  # of the time: 512 points with five draws each


def truth(mean: np.ndarray, scale: float, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    uniform = qmc.Sobol(mean.shape[1], scramble=True, rng=np.random.default_rng(99)).random_base2(
        16
    )
    noise = norm.ppf(np.clip(uniform, 1e-12, 1.0 - 1e-12))
    expectations, probabilities = [], []
    for m, k in zip(mean, classes, strict=True):
        F = m + scale * noise
        log_p = F[:, k] - np.logaddexp.reduce(F, axis=1)
        expectations.append(log_p.mean())
        probabilities.append(np.exp(log_p).mean())
    return np.array(expectations), np.array(probabilities)


def errors(num_classes: int, scale: float) -> list[float]:
    """Root mean squares over points and seeds: of both figures, ours and GPflow's."""
    rng = np.random.default_rng(0)
    mean = 2.0 * rng.standard_normal([NUM_POINTS, num_classes])
    gumbel = rng.gumbel(size=mean.shape)
    classes = np.argmax(mean + gumbel, axis=1)
    exact = truth(mean, scale, classes)
    likelihood = gpflow.likelihoods.Softmax(num_classes)
    arguments = [tf.zeros([NUM_POINTS, 1], tf.float64), tf.constant(mean)]
    arguments += [tf.fill(mean.shape, tf.constant(scale**2, tf.float64))]
    Y = tf.constant(classes[:, None])
    squares = []
    for seed in range(NUM_SEEDS):
        with nodes_of_seed([seed, 0]):
            ours = [
                gd.likelihoods.variational_expectations(likelihood, *arguments, Y),
                tf.exp(gd.likelihoods.predict_log_density(likelihood, *arguments, Y)),
            ]
        tf.random.set_seed(seed)
        theirs = [
            likelihood.variational_expectations(*arguments, Y),
            tf.exp(likelihood.predict_log_density(*arguments, Y)),
        ]
        both = [*ours, *theirs]
        squares.append([np.mean((a - b) ** 2) for a, b in zip(both, exact * 2, strict=True)])
    return list(np.sqrt(np.mean(squares, axis=0)))


def milliseconds(num_classes: int) -> list[float]:
    rng = np.random.default_rng(0)
    mean = tf.constant(2.0 * rng.standard_normal([BATCH, num_classes]))
    variance = tf.constant(rng.uniform(0.1, 2.0, [BATCH, num_classes]))
    Y = tf.constant(rng.integers(0, num_classes, [BATCH, 1]))
    X, likelihood = tf.zeros([BATCH, 1], tf.float64), gpflow.likelihoods.Softmax(num_classes)

    def time(expectations: Callable[..., tf.Tensor]) -> float:
        @tf.function(autograph=False)
        def gradients() -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch([mean, variance])
                value = tf.reduce_sum(expectations(X, mean, variance, Y))
            return tape.gradient(value, [mean, variance])

        return measure(gradients, 20)["least_cpu"]

    ours = partial(gd.likelihoods.variational_expectations, likelihood)
    return [time(ours), time(likelihood.variational_expectations)]


def main() -> None:
    print("| classes | standard deviation | E log p | p | GPflow's E log p | p |")
    print("|---|---|---|---|---|---|")
    for num_classes in (3, 10, 30):
        for scale in (0.3, 1.0, 3.0):
            figures = " | ".join(f"{x:.4f}" for x in errors(num_classes, scale))
            print(f"| {num_classes} | {scale:g} | {figures} |")
    for num_classes in (3, 10):
        ours, theirs = milliseconds(num_classes)
        print(f"{num_classes} classes, {BATCH} points: {ours:.0f} ms, GPflow {theirs:.0f} ms")


if __name__ == "__main__":
    main()
