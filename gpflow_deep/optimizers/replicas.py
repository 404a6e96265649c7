"""Gradients where several replicas take a step together."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from gpflow.base import TensorType

__all__ = ["average_over_replicas"]


def average_over_replicas(
    gradients: Sequence[TensorType], variables: Sequence[tf.Variable], name: str
) -> Sequence[TensorType]:
    """
    The average of each gradient over the replicas; as they are where there is one.

    :param gradients: this replica's.
    :param variables: what the step will change.
    :param name: of the caller's argument that they came by, for the error.
    :raises ValueError: where replicas share one of these.
    """
    if tf.distribute.in_cross_replica_context():
        return gradients
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return gradients
    for variable in variables:
        if not isinstance(variable, tf.distribute.DistributedValues):
            raise ValueError(
                f"{name}: expected a model, and an optimiser, made in the scope of the strategy, got"
                f" the variable {variable.name}, which all replicas share."
            )
    tensors = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return context.all_reduce(tf.distribute.ReduceOp.MEAN, tensors)
