"""What cannot be done by several replicas."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["check_one_replica"]


def check_one_replica() -> None:
    """Raise a RuntimeError where GPflow's natural gradients would let replicas diverge without a word."""
    if tf.distribute.in_cross_replica_context():
        return
    num_replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    if num_replicas > 1:
        raise RuntimeError(
            "variational_params: expected one replica, since gpflow.optimizers.NaturalGradient updates each"
            f" by its own gradients, got {num_replicas}. gpflow_deep.optimizers.NaturalGradient averages"
            " them."
        )
