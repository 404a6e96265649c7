"""How far a run has come on its way: by its steps, or by the time where that is limited."""

from __future__ import annotations

__all__ = ["Clock", "Decay", "Pace", "Tempering"]

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_deep.validation import check_positive_integer, check_share


class Clock:
    """
    The place of a run on a scale from 0 to its number of steps: the steps taken, or the same share of them
    as of the time where that is more. What is due every so many steps goes by it.

    :param steps: of the run.
    :param time_limit: seconds for the run, or None.
    """

    def __init__(self, steps: int, time_limit: float | None) -> None:
        self._steps = steps
        self._time_limit = time_limit

    def place(self, step: int, seconds: float) -> int:
        """The place after so many steps and seconds; at the end, which time may come to first, `steps`."""
        if self._time_limit is None:
            return step
        return max(step, int(self._steps * min(seconds / self._time_limit, 1.0)))


class Pace:
    """
    How many steps to compile into one call, so that calls are short but not many.

    It goes by the time that this process has had: under load steps take longer by the clock on the wall, and
    the overhead of many calls of one step each would make them slower still. Threads beside each other have
    more of it than passes on the wall, work on an accelerator has less: so it is no more than that, and no
    less than a tenth.
    """

    _SECONDS_PER_CALL = 0.1  # short enough for a lively progress bar
    _MOST = 200
    _LEAST_SHARE = 0.1

    def __init__(self) -> None:
        self._started = self._now()

    @staticmethod
    def _now() -> np.ndarray:
        return np.array([time.perf_counter(), time.process_time()])

    def start(self) -> None:
        """A call begins."""
        self._started = self._now()

    def seconds(self) -> float:
        """That it has taken, as far as they count."""
        wall, own = self._now() - self._started
        return max(min(wall, own), self._LEAST_SHARE * wall)

    def count(self, seconds_per_step: float) -> int:
        """Steps of the next call."""
        return int(np.clip(self._SECONDS_PER_CALL / seconds_per_step, 1, self._MOST))


class Decay(tf_keras.optimizers.schedules.ExponentialDecay):
    """Exponential decay in stairs by a run's clock; :attr:`place` is set between calls of its steps."""

    def __init__(self, learning_rate: float, decay_steps: int, decay_rate: float) -> None:
        super().__init__(learning_rate, decay_steps, decay_rate, staircase=True)
        self.place = tf.Variable(0, dtype=tf.int64, trainable=False)

    def __call__(self, step: Any) -> tf.Tensor:
        """The rate at a step, or at the place where that is further on."""
        return super().__call__(tf.maximum(tf.cast(step, tf.int64), self.place))


@dataclass(frozen=True)
class Tempering:
    """
    The weight of the divergences from the prior in training, which rises to one in equal parts: before it is
    as heavy as the data, a model can learn from them what it would not find from the prior.

    >>> tempering = gd.training.Tempering(steps=1000, start=0.1)
    >>> print(*[f"{tempering(step):.2f}" for step in (0, 500, 1000, 5000)])
    0.10 0.55 1.00 1.00

    :param steps: of training, or as many of its limited time, after which the weight is one.
    :param start: weight at the start.
    :raises ValueError: for no positive integer, or a weight that is not between 0 and 1.
    """

    steps: int = 1000
    start: float = 0.1

    def __post_init__(self) -> None:
        check_positive_integer(self.steps, "steps")
        check_share(self.start, "start")

    def __call__(self, place: Any) -> tf.Tensor:
        """The weight at a place of a run, [] in float64."""
        share = tf.minimum(tf.cast(place, tf.float64) / self.steps, 1.0)
        return self.start + (1.0 - self.start) * share
