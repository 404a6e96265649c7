"""The evidence of an exact GP, and the climb to its maximum."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy
from scipy.optimize import OptimizeResult, minimize

from gpflow_deep.numerics.compiled import compiled
from gpflow_deep.numerics.factorisations import FactorisationError
from gpflow_deep.presets.exact import ExactGP

__all__ = ["Objective", "maximise"]

_MUCH, _LAST_ITERATIONS = 0.002, 5  # nats a row each, as functions without noise gain for long


class Objective:
    """
    A model's training loss with its gradient as SciPy takes them, of one vector of all unconstrained values:
    compiled once for all climbs, and one call an evaluation, of which fits of few rows make hundreds.
    """

    def __init__(self, model: ExactGP) -> None:
        self.model = model
        # Looking for a model's variables takes longer than its evidence of few rows.
        self._variables = model.trainable_variables
        self._evaluate = compiled(partial(_loss_and_gradient, model, self._variables))

    def __call__(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Loss and gradient at these values, which the model then has."""
        loss, gradient = self._evaluate(tf.constant(values))
        return float(loss), gradient.numpy()

    @property
    def num_rows(self) -> int:
        """Of the model's data."""
        return int(self.model.inputs.shape[0])

    @property
    def values(self) -> np.ndarray:
        """That the model has."""
        return Scipy.pack_tensors(self._variables).numpy().astype(np.float64)

    def assign(self, values: np.ndarray) -> None:
        """Let the model have them."""
        _assign(self._variables, tf.constant(values))


def _loss_and_gradient(
    model: ExactGP, variables: Sequence[tf.Variable], values: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    _assign(variables, values)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        loss = model.training_loss()
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    return loss, tf.cast(Scipy.pack_tensors(gradients), values.dtype)


def _assign(variables: Sequence[tf.Variable], values: tf.Tensor) -> None:
    Scipy.assign_tensors(variables, Scipy.unpack_tensors(variables, values))


def maximise(objective: Objective, iterations: int, seconds: float, longer: float) -> None:
    """
    Maximise the evidence from the values that the model has: in so many seconds, or so many times longer
    where the last iterations gained much. Where a factorisation fails far out, it goes on from the last
    iteration.
    """
    started = time.perf_counter()
    losses: list[float] = []
    reached = objective.values

    def stop_in_time(intermediate_result: OptimizeResult) -> None:
        nonlocal reached
        losses.append(intermediate_result.fun / objective.num_rows)
        reached = np.copy(intermediate_result.x)
        taken = time.perf_counter() - started
        if taken > seconds and (taken > longer * seconds or not _gains_much(losses)):
            raise StopIteration

    while (before := len(losses)) < iterations:
        try:
            found = minimize(
                objective,
                reached,
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": iterations - before},
                callback=stop_in_time,
            )
            if np.isfinite(found.fun):
                objective.assign(found.x)
                return
        except (FactorisationError, tf.errors.InvalidArgumentError):
            pass
        objective.assign(reached)
        if len(losses) == before:
            return


def _gains_much(losses: Sequence[float]) -> bool:
    """Whether the last iterations gained so much that more should follow."""
    if len(losses) <= _LAST_ITERATIONS:
        return True
    return losses[-1 - _LAST_ITERATIONS] - losses[-1] > _LAST_ITERATIONS * _MUCH
