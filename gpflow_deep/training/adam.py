"""Adam as one operation a variable."""

from __future__ import annotations

__all__ = ["Adam"]

from types import SimpleNamespace

import tensorflow as tf
from gpflow.keras import tf_keras


class Adam(tf_keras.optimizers.Adam):
    """
    tf_keras's, equal to it up to rounding, by TensorFlow's own kernel: tf_keras takes forty operations for
    each variable, a sixth of a small model's graph and of the time to trace it.
    """

    _shared = SimpleNamespace(graph=None, factors={})

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Of one variable, or one replica's copy."""
        index = self._index_dict[self._var_key(variable)]
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].handle,
            v=self._velocities[index].handle,
            grad=gradient,
            **self._shared_factors(variable.dtype),
        )

    def _shared_factors(self, dtype: tf.DType) -> dict[str, tf.Tensor]:
        """What the updates of all variables of a graph take."""
        graph = tf.compat.v1.get_default_graph()
        if self._shared.graph is not graph or tf.executing_eagerly():
            self._shared = SimpleNamespace(
                graph=graph, factors={}
            )  # a dictionary would be checkpointed
        factors = self._shared.factors
        if dtype not in factors:
            step = tf.cast(self.iterations + 1, dtype)
            beta1, beta2 = tf.constant(self.beta_1, dtype), tf.constant(self.beta_2, dtype)
            factors[dtype] = dict(
                beta1=beta1,
                beta2=beta2,
                beta1_power=tf.pow(beta1, step),
                beta2_power=tf.pow(beta2, step),
                lr=tf.cast(self.learning_rate, dtype),
                epsilon=tf.constant(self.epsilon, dtype),
            )
        return factors[dtype]
