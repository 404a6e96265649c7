"""The replicas that share a training step: one, those of a machine, or those of several."""

from __future__ import annotations

__all__ = ["Replicas"]

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_deep.numerics.compiled import compiled

from .progress import Progress, TrainingError

_STRATEGIES = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)

#: What TensorFlow raises in the workers that are left when one of them is gone.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)


class Replicas:
    """
    The replicas of a strategy, each with a copy of every variable and a share of every batch, and the workers
    that they belong to: processes of one script.

    All workers go the same way through it. What decides on that way has to be the same in all of them, or one
    would wait for ever for the others: see :meth:`agree`.

    :param strategy: of `tf.distribute`; None for the one in whose scope this is, else for a single replica.
    :raises TypeError: it is none that keeps replicas equal in every step.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None) -> None:
        if strategy is not None and not isinstance(strategy, _STRATEGIES):
            raise TypeError(
                "strategy: expected tf.distribute.MirroredStrategy or MultiWorkerMirroredStrategy, got "
                f"{type(strategy).__name__}."
            )
        self.strategy = strategy or tf.distribute.get_strategy()
        self.number: int = self.strategy.num_replicas_in_sync
        self.num_workers = 1
        if isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy):
            cluster = self.strategy.cluster_resolver.cluster_spec().as_dict()
            self.num_workers = max(1, sum(len(addresses) for addresses in cluster.values()))
        #: Whether this worker is the one that writes checkpoints and shows progress.
        self.is_chief: bool = self.strategy.extended.should_checkpoint
        self._gather = compiled(lambda x: self.strategy.gather(self.run(lambda: x), axis=0))

    def scope(self) -> AbstractContextManager[Any]:
        """Where variables are made that each replica has a copy of."""
        return self.strategy.scope()

    def check(
        self,
        model: gpflow.models.BayesianModel,
        optimizer: Any,
        natural_gradient: Any,
        sampler: Any,
    ) -> None:
        """
        Check that every replica has a copy of all variables, and let `set_trainable` reach the copies.

        :param optimizer: a user's, or None.
        :param natural_gradient: likewise, or a step size.
        :param sampler: a user's, or None.
        :raises ValueError: it has not: model or optimisers were made elsewhere.
        :raises TypeError: the optimiser is not for several replicas.
        """
        if not isinstance(self.strategy, _STRATEGIES):
            if any(isinstance(v, tf.distribute.DistributedValues) for v in model.variables):
                raise ValueError(
                    "model: expected one made for a single device, got one made in the scope of a strategy"
                    " of tf.distribute: give fit that strategy too."
                )
            return
        if not isinstance(optimizer, tf_keras.optimizers.Optimizer | None):
            raise TypeError(
                "optimizer: expected one of gpflow.keras.tf_keras.optimizers for a strategy, got "
                f"{type(optimizer).__module__}.{type(optimizer).__name__}."
            )
        parts = dict(
            model=model, optimizer=optimizer, natural_gradient=natural_gradient, sampler=sampler
        )
        for name, part in parts.items():
            variables = getattr(part, "variables", ())
            if {getattr(v, "distribute_strategy", None) for v in variables} - {self.strategy}:
                raise ValueError(
                    f"{name}: expected one made, with all that it is made of, in the scope of the strategy"
                    " that fit is given (with strategy.scope(): ...), got one made elsewhere."
                )
        for variable in model.variables:
            # GPflow sets it on what holds the copies, and TensorFlow reads it from them.
            for copy in variable.values:
                copy._trainable = vars(variable).get("_trainable", copy.trainable)

    def check_batch_size(self, batch_size: int) -> int:
        """
        The rows of a batch.

        :raises ValueError: the replicas' shares would not be equal.
        """
        if batch_size % self.number:
            raise ValueError(
                f"batch_size: expected a multiple of {self.number}, as each replica takes an equal share,"
                f" got {batch_size} rows."
            )
        return batch_size

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function returns in each replica, where :meth:`share` and :meth:`mean` may be called."""
        return self.strategy.run(function, args=args)

    def first(self, values: Any) -> Any:
        """The first replica's of what :meth:`run` returned."""
        return self.strategy.experimental_local_results(values)[0]

    def share(self, x: tf.Tensor, axis: int = 0) -> tf.Tensor:
        """The part of a tensor that is this replica's, of as many equal parts as there are replicas."""
        if self.number == 1:
            return x
        shape = list(x.shape)
        parts = tf.reshape(x, [*shape[:axis], self.number, -1, *shape[axis + 1 :]])
        shape[axis] //= self.number
        return tf.ensure_shape(tf.gather(parts, _own_index(), axis=axis), shape)

    def own_seed(self, seed: tf.Tensor) -> tf.Tensor:
        """Of draws that are this replica's alone."""
        if self.number == 1:
            return seed
        return tf.random.experimental.stateless_fold_in(seed, _own_index())

    def mean(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The mean of each over replicas: the same, to the bit, in all of them."""
        if self.number == 1:
            return list(tensors)
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, list(tensors))

    def agree(self, *numbers: float) -> list[float]:
        """The means of what the workers have for each number: the same in all of them."""
        return self._of_all_workers(*numbers).mean(axis=0).tolist()

    def _of_all_workers(self, *numbers: float) -> np.ndarray:
        """Each one's numbers, [workers, numbers]."""
        own = np.array([numbers], np.float64)
        if self.num_workers == 1:
            return own
        everyone = self._gather(tf.constant(own)).numpy()
        return everyone[:: self.number // self.num_workers]

    def check_agreement(self, run: Progress) -> None:
        """
        Check that all workers are at the same run, and at the same step of it.

        :raises ValueError: they are not.
        """
        # Two integers that a float holds exactly.
        mark = int(hashlib.sha256(json.dumps(run.settings).encode()).hexdigest()[:12], 16)
        everyone = self._of_all_workers(mark, run.step)
        if len(set(everyone[:, 0])) > 1:
            raise ValueError(
                "strategy: expected all workers to call fit with the same data, model and settings, got"
                " others in some of them."
            )
        if len(set(everyone[:, 1])) > 1:
            raise ValueError(
                "checkpoint_dir: expected a folder that all workers see, got one that leaves them at the"
                f" steps {', '.join(str(int(step)) for step in everyone[:, 1])}."
            )

    @contextmanager
    def watched(self, run: Progress) -> Iterator[None]:
        """
        While they take steps: say in words where a worker is lost.

        :raises TrainingError: it is.
        """
        try:
            yield
        except _LOST as error:
            if self.num_workers == 1:
                raise
            raise TrainingError(
                f"Training ended after step {run.step}: a worker is gone, or can no longer be reached."
                " Start all workers again: with checkpoint_dir the same call goes on, to the same result,"
                " from the last checkpoint.",
                run.step,
            ) from error


def _own_index() -> tf.Tensor:
    """In a replica: which one it is."""
    return tf.distribute.get_replica_context().replica_id_in_sync_group
