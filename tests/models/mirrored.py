"""
One training step of every family on two replicas and on one: run as a program, since devices have to be
configured before TensorFlow starts. Writes one JSON line a family: the largest differences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_deep.models import DeepGPModel
from tests.models.contract import COMPILED_FAMILIES, X, Y, fix_draws, gradients, make_model, values

__all__: list[str] = []


def _halves(array: np.ndarray, axis: int) -> list[np.ndarray]:
    return np.split(np.asarray(array), 2, axis=axis)


def _difference(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    return max(
        float(np.abs(a - e).max() / (1e-3 + np.abs(e).max()))
        for a, e in zip(actual, expected, strict=True)
    )


def _step_on_one(model: DeepGPModel) -> list[np.ndarray]:
    variables = model.trainable_variables
    _, slopes = gradients(lambda: model.training_loss((X, Y)), variables)
    tf_keras.optimizers.SGD(1e-3).apply_gradients(zip(slopes, variables, strict=True))
    return [slope.numpy() for slope in slopes]


def _step_on_two(
    model: DeepGPModel, strategy: tf.distribute.Strategy, compiled: bool
) -> list[np.ndarray]:
    """Each replica has half of the batch and the draws of its points; `num_data` does the rest."""
    replicas = range(strategy.num_replicas_in_sync)
    batches = [_halves(array, 0) for array in (X, Y)]
    noise = getattr(model, "draw_noise", lambda: [])()
    with strategy.scope():
        optimizer = tf_keras.optimizers.SGD(1e-3)

    def distributed(halves: Sequence[np.ndarray]) -> tf.distribute.DistributedValues:
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(halves[context.replica_id_in_sync_group])
        )

    def step(X: tf.Tensor, Y: tf.Tensor, noise: list[tf.Tensor]) -> list[tf.Tensor]:
        if noise:
            model.draw_noise = lambda *args, **kwargs: noise
        variables = model.trainable_variables
        _, slopes = gradients(lambda: model.training_loss((X, Y)) / len(replicas), variables)
        optimizer.apply_gradients(zip(slopes, variables, strict=True))  # of the sum over replicas
        return slopes

    arguments = [distributed(halves) for halves in batches]
    # Draws of points go with their points; those of inducing outputs are every replica's.
    arguments.append(
        [distributed(_halves(z, 1) if z.shape[1] == len(X) else [z, z]) for z in noise]
    )
    if compiled:
        step = tf.function(step, autograph=False)
    slopes = strategy.run(step, args=arguments)
    return [strategy.reduce("SUM", slope, axis=None).numpy() for slope in slopes]


def main() -> None:
    """Compare the gradients and the parameters after a step."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    for index, family in enumerate(COMPILED_FAMILIES):
        one = make_model(family)
        with strategy.scope():
            two = make_model(family)
        before = values(one)
        for model in (one, two):
            fix_draws(model)
        expected = _step_on_one(one)
        actual = _step_on_two(two, strategy, compiled=index == 0)  # it takes seconds
        result = {
            "family": family,
            "gradient": _difference(actual, expected),
            "parameters": float(np.abs(values(two) - values(one)).max()),
            "step": float(np.abs(values(one) - before).max()),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
