"""The evidence of an exact GP, and the climb to its maximum."""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy
from scipy.optimize import OptimizeResult, minimize

from gpflow_deep.numerics.compiled import compiled
from gpflow_deep.numerics.factorisations import LEAF, FactorisationError
from gpflow_deep.presets.exact import ExactGP

__all__ = [
    "LAST_RESORT",
    "NOTHING_BUT_NOISE",
    "START",
    "Objective",
    "Start",
    "maximise",
    "shared_objective",
]

_MOST_COMPILED = 32  # objectives that are kept
_MUCH, _LAST_ITERATIONS = 0.002, 5  # nats a row each, as functions without noise gain for long


class Start(NamedTuple):
    """Where a climb begins."""

    lengthscales: float  # a factor of them
    noise: float


START = Start(1.0, 0.1)
# Where a fit ends with nothing but noise, as it does of many inputs few of which count. Where it does not,
# this leads to more evidence on few rows, and to less on more.
LAST_RESORT, NOTHING_BUT_NOISE = Start(0.3, 0.01), 0.8


class Objective:
    """
    A model's training loss with its gradient as SciPy takes them, of one vector of all unconstrained values:
    compiled once for all climbs, and one call an evaluation, of which fits of few rows make hundreds.

    :param model: whose trainable variables the values are of.
    :param like: that of a model of the same kernel, priors and numbers of columns, and of rows where they are
        not few, whose compilation does for this one too.
    :param alike: whether all lengthscales have one value: the vector is of one value a parameter.
    """

    def __init__(self, model: ExactGP, like: Objective | None = None, alike: bool = False) -> None:
        self.model = model
        # Looking for a model's variables takes longer than its evidence of few rows.
        self._variables = model.trainable_variables
        sizes = [variable.shape.num_elements() for variable in self._variables]
        #: Which entry of the vector each number of the model is.
        self._places = np.repeat(range(len(sizes)), sizes) if alike else np.arange(sum(sizes))
        self._data = tuple(map(tf.convert_to_tensor, (*model.data, model.weights)))
        self._evaluate: Any = self._compile() if like is None else like._evaluate

    def _compile(self) -> Any:
        N = _compiled_rows(self.model)
        rows = [tf.TensorSpec([N, *array.shape[1:]], array.dtype) for array in self._data]
        values = tf.TensorSpec(self._places.shape, tf.float64)
        function = partial(_loss_and_gradient, self.model, self._variables)
        return compiled(function, input_signature=[values, *rows])

    def __call__(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Loss and gradient at these values, which the model of the compilation then has."""
        loss, gradient = self._evaluate(tf.constant(values[self._places]), *self._data)
        return float(loss), np.bincount(self._places, gradient.numpy())

    @property
    def num_rows(self) -> int:
        """Of the model's data."""
        return int(self.model.inputs.shape[0])

    @property
    def values(self) -> np.ndarray:
        """That the model has."""
        numbers = Scipy.pack_tensors(self._variables).numpy().astype(np.float64)
        return np.bincount(self._places, numbers) / np.bincount(self._places)

    def assign(self, values: np.ndarray) -> None:
        """Let the model have them."""
        _assign(self._variables, tf.constant(values[self._places]))


def _loss_and_gradient(
    model: ExactGP, variables: Sequence[tf.Variable], values: tf.Tensor, *data: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    _assign(variables, values)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        loss = -(model.log_evidence(*data) + model.log_prior_density())
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    return loss, tf.cast(Scipy.pack_tensors(gradients), values.dtype)


class _Compiled(threading.local):
    """What of a name was compiled first: by each thread, as evaluations assign to variables."""

    def __init__(self) -> None:
        self.first: OrderedDict[Hashable, Objective] = OrderedDict()


_compiled = _Compiled()


def shared_objective(model: ExactGP, *name: Hashable, alike: bool = False) -> Objective:
    """
    A model's objective, with one compilation, which takes a second, for all of a name: in a fit, and in
    others, such as to the folds of a cross-validation.

    :param name: the same for models of one kernel and priors alone.
    :param alike: whether all lengthscales have one value.
    """
    columns = model.inputs.shape[1], model.num_latent_gps
    key = (*name, *columns, model.inputs.dtype, _compiled_rows(model), gpflow.config.config())
    first = _compiled.first
    if key not in first:
        # Evaluations leave their values in the model that was compiled: nobody's.
        first[key] = Objective(copy.deepcopy(model))
    first.move_to_end(key)
    if len(first) > _MOST_COMPILED:
        first.popitem(last=False)
    return Objective(model, first[key], alike)


def _compiled_rows(model: ExactGP) -> int | None:
    """How many rows its objective is compiled for; ``None`` for any number of few."""
    num_rows = int(model.inputs.shape[0])
    return None if num_rows <= LEAF else num_rows


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
