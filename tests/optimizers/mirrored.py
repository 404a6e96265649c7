"""
Natural gradient steps on two replicas and on one: run as a program, since devices have to be configured
before TensorFlow starts. Writes one JSON line: what the replicas' parameters differ by, and what was refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_deep.optimizers import NaturalGradient
from tests.models.contract import X, Y, fix_draws, make_model

__all__: list[str] = []

HALVES = [(X[:10], Y[:10]), (X[10:], Y[10:])]
STEPS = 3


def _refusal(run: Callable[[], Any]) -> str:
    try:
        run()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


def main() -> None:
    """Compare the parameters."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    one = make_model("stripes-and-arrow")
    with strategy.scope():
        two, optimizer = make_model("stripes-and-arrow"), NaturalGradient(0.2)
    for model in (one, two):
        fix_draws(model, num_points=10)
    own = NaturalGradient(0.2)
    before = own.variables_of(one)[0].numpy()
    for _ in range(STEPS):
        own.minimize(lambda: tf.add_n([one.training_loss(half) for half in HALVES]) / 2.0, one)

    batch = [
        strategy.experimental_distribute_values_from_function(
            lambda context, i=i: tf.constant(HALVES[context.replica_id_in_sync_group][i])
        )
        for i in range(2)
    ]

    @tf.function(autograph=False)
    def run() -> None:
        strategy.run(lambda *half: optimizer.minimize(lambda: two.training_loss(half), two), batch)

    for _ in range(STEPS):
        run()
    copies = [
        [variable.numpy() for variable in strategy.experimental_local_results(mirrored)]
        for mirrored in optimizer.variables_of(two)
    ]
    expected = [variable.numpy() for variable in own.variables_of(one)]
    loss = [tf.zeros_like(variable) for variable in own.variables_of(one)]
    pairs = make_model("mean-field").inducing_posterior
    result = {
        "equal": all(np.array_equal(*pair) for pair in copies),
        "difference": max(
            float(np.abs(pair[0] - e).max()) for pair, e in zip(copies, expected, strict=True)
        ),
        "step": float(np.abs(expected[0] - before).max()),
        "iterations": int(optimizer.iterations.numpy()),
        "shared": _refusal(lambda: strategy.run(lambda: own.apply_gradients(loss, one))),
        "gpflows": _refusal(lambda: strategy.run(lambda: pairs.variational_params)),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
