"""Draws through the hidden layers that are learned: few of them predict as many random ones do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.keras import tf_keras

from ..numerics.compiled import compiled

__all__ = ["learn_draws"]

_RATE = 0.03
_BATCH = 128


def learn_draws(
    log_density: Callable[[tf.Tensor, tf.Tensor, Sequence[tf.Tensor]], tf.Tensor],
    X: tf.Tensor,
    Y: tf.Tensor,
    wanted: tf.Tensor,
    start: Sequence[TensorType],
    steps: int,
    seed: int,
) -> tuple[list[np.ndarray], float]:
    """
    Draws that give some data nearly the log densities that are wanted, in the mean of squares.

    :param log_density: of inputs, targets and draws, [N].
    :param X: inputs [N, D].
    :param Y: targets [N, P].
    :param wanted: log densities [N].
    :param start: the first draws, [S, 1, T_l] for each hidden layer.
    :param steps: of Adam.
    :param seed: of the minibatches.
    :return: the draws, and the root mean square of what the log densities still differ by.
    """
    variables = [tf.Variable(z) for z in start]
    optimizer = tf_keras.optimizers.Adam(_RATE)
    optimizer.build(variables)

    def error(*data: tf.Tensor) -> tf.Tensor:
        X, Y, wanted = data
        draws = [tf.convert_to_tensor(z) for z in variables]
        return tf.reduce_mean(tf.square(log_density(X, Y, draws) - wanted))

    def step(rows: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = error(*(tf.gather(array, rows) for array in (X, Y, wanted)))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    take, rng, N = compiled(step), np.random.default_rng(seed), len(wanted)
    for _ in range(steps):
        take(tf.constant(rng.choice(N, min(_BATCH, N), replace=False)))
    return [z.numpy() for z in variables], float(np.sqrt(error(X, Y, wanted)))
