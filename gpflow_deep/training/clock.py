"""How far a run has come on its way: by its steps, or by the time where that is limited."""

from __future__ import annotations

__all__ = ["Clock", "Decay"]

from typing import Any

import tensorflow as tf
from gpflow.keras import tf_keras


class Clock:
    """
    The place of a run on a scale from 0 to its number of steps: the steps taken, or the same share of them
    as of the time where that is more. What is due every so many steps goes by it.

    :param steps: Of the run.
    :param time_limit: Seconds for the run, or None.
    """

    def __init__(self, steps: int, time_limit: float | None) -> None:
        self._steps = steps
        self._time_limit = time_limit

    def place(self, step: int, seconds: float) -> int:
        """The place after so many steps and seconds; at the end, which time may come to first, `steps`."""
        if self._time_limit is None:
            return step
        return max(step, int(self._steps * min(seconds / self._time_limit, 1.0)))


class Decay(tf_keras.optimizers.schedules.ExponentialDecay):
    """Exponential decay in stairs by a run's clock; :attr:`place` is set between calls of its steps."""

    def __init__(self, learning_rate: float, decay_steps: int, decay_rate: float) -> None:
        super().__init__(learning_rate, decay_steps, decay_rate, staircase=True)
        self.place = tf.Variable(0, dtype=tf.int64, trainable=False)

    def __call__(self, step: Any) -> tf.Tensor:
        """The rate at a step, or at the place where that is further on."""
        return super().__call__(tf.maximum(tf.cast(step, tf.int64), self.place))
