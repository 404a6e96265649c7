"""
What draws of whole functions cost, beside joint draws at points that are known: two layers, 5 hidden GPs, 128
inducing points, 8 inputs, ten draws, float64, one thread.

    python benchmarks/function_draws.py
"""

from __future__ import annotations

import os

from harness import ENVIRONMENT, THREADS

# TensorFlow reads them on import.
os.environ.update(ENVIRONMENT, **dict.fromkeys(THREADS, "1"))

from functools import partial

import gpflow
import numpy as np
import tensorflow as tf
from harness import measure

import gpflow_deep as gd

NUM_SAMPLES, INPUT_DIM = 10, 8
#: Joint draws factorise matrices of all points: beyond these they are not tried.
MOST_JOINT_POINTS = 2000


def main() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (500, INPUT_DIM))
    layers = gd.layers.build_layers(X, (5,), num_inducing=128)
    model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.05), num_data=len(X))
    draw = partial(model.sample_functions, NUM_SAMPLES, [0, 1])
    print(f"to draw: {measure(draw, 3)['least_cpu']:.0f} CPU ms")
    functions = draw()
    compiled = tf.function(
        functions, input_signature=[tf.TensorSpec([None, INPUT_DIM], tf.float64)]
    )
    print("| points | the functions, CPU ms | compiled | joint draws |")
    print("|---|---|---|---|")
    for num_points in (1, 250, 1000, 2000, 10_000):
        Xnew = rng.uniform(-2.0, 2.0, (num_points, INPUT_DIM))
        calls = [partial(functions, Xnew), partial(compiled, Xnew)]
        if num_points <= MOST_JOINT_POINTS:
            calls.append(partial(model.predict_f_samples, Xnew, NUM_SAMPLES))
        cells = [f"{measure(call, 3)['least_cpu']:.0f}" for call in calls]
        print(f"| {num_points} | {' | '.join([*cells, *[''] * (3 - len(cells))])} |")


if __name__ == "__main__":
    main()
