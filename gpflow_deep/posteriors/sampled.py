"""The posterior over inducing outputs as the states of Markov chains."""

from __future__ import annotations

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Module, Parameter, TensorType

from ..layers import GPLayer
from ..validation import (
    check_positive_integer,
    check_positive_number,
    check_seed,
    check_sequence_of,
)
from .records import Record

__all__ = ["SampledPosterior", "spread"]


class SampledPosterior(Module):
    """
    States of Markov chains over the whitened inducing outputs v of all layers, whose prior is N(0, I): where
    the chains are now, and the last of the states that were kept. Predictions are of those kept while the
    chains are where their sampler left them, and of the present ones where these were assigned since.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> q = gd.posteriors.SampledPosterior(layers, num_chains=3, num_kept=10)
    >>> [variable.shape for variable in q.variables_of_chains]
    [TensorShape([3, 2, 5]), TensorShape([3, 1, 5])]

    :param layers: the layers whose inducing outputs they are. Only their sizes are kept.
    :param num_chains: C, chains that run side by side.
    :param num_kept: R, states of each chain that are kept: the last ones.
    :param window: W, last states of each chain that are remembered for learning, see :meth:`remember`.
    :param initial_scale: standard deviation of the states that the chains start from.
    :param seed: of these.
    """

    def __init__(
        self,
        layers: Sequence[GPLayer],
        num_chains: int,
        num_kept: int,
        *,
        window: int = 1,
        initial_scale: float = 0.01,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.num_chains = check_positive_integer(num_chains, "num_chains")
        self.num_kept = check_positive_integer(num_kept, "num_kept")
        self.window = check_positive_integer(window, "window")
        check_sequence_of(layers, GPLayer, "layers")
        initial_scale = check_positive_number(initial_scale, "initial_scale")
        rng, float_type = np.random.default_rng(check_seed(seed)), gpflow.default_float()
        shapes = [[num_chains, layer.num_latent_gps, layer.num_inducing] for layer in layers]
        starts: list[np.ndarray] = [
            (initial_scale * rng.standard_normal(s)).astype(float_type) for s in shapes
        ]
        self._prior = tfp.distributions.Normal(*np.array([0.0, 1.0], float_type))
        self.chains = [Parameter(start, prior=self._prior) for start in starts]
        self.left = [Record(start) for start in starts]
        self.kept = [Record(np.zeros([num_kept, *start.shape], float_type)) for start in starts]
        self.times_kept = Record(np.array(0, np.int64))
        remembered = starts if window > 1 else []  # the present states need no copy
        self.remembered = [Record(np.stack([start] * window)) for start in remembered]
        self.recalled = [Record(start) for start in remembered]

    @property
    def variables_of_chains(self) -> list[tf.Variable]:
        """What a sampler moves: [C, T_l, M_l] for each layer whose chains are trainable."""
        return [chain.unconstrained_variable for chain in self.chains if chain.trainable]

    @property
    def variables_kept(self) -> list[tf.Variable]:
        """What predictions are made of, and where the chains have to be for that."""
        return _variables([*self.kept, self.times_kept, *self.left])

    def keep(self) -> None:
        """Keep the present states, in place of the oldest ones."""
        slot = tf.cast(self.times_kept % self.num_kept, tf.int32)
        for kept, chain in zip(_variables(self.kept), self.chains):
            kept.scatter_update(tf.IndexedSlices(tf.convert_to_tensor(chain)[None], slot[None]))
        self.times_kept.unconstrained_variable.assign_add(1)
        self.leave()

    def leave(self) -> None:
        """Note where the chains are: a sampler brought them there, and the kept states are theirs."""
        for left, chain in zip(_variables(self.left), self.chains):
            left.assign(chain)

    def remember(self, step: tf.Tensor, seed: int) -> None:
        """
        Put the present states into the window, in place of its oldest, and recall one of those in it.

        :param step: how many were put there before.
        :param seed: of the draw, which is a pure function of it and the step.
        """
        index = tf.random.stateless_uniform(
            [], [seed, step], maxval=tf.minimum(step + 1, self.window), dtype=tf.int64
        )
        slot = step % self.window
        parts = _variables(self.remembered), _variables(self.recalled), self.chains
        for remembered, recalled, chain in zip(*parts):
            present = tf.convert_to_tensor(chain)[None]
            remembered.scatter_update(tf.IndexedSlices(present, slot[None]))
            recalled.assign(remembered[index])

    def forget(self) -> None:
        """Keep none: predictions are of the present states until others are kept."""
        self.times_kept.unconstrained_variable.assign(0)

    def log_prior(self, states: Sequence[TensorType] | None = None) -> tf.Tensor:
        """
        Log density of each chain's state under the prior, [C].

        :param states: [C, T_l, M_l] for each layer; the present ones by default.
        """
        states = self.chains if states is None else states
        return tf.add_n([tf.reduce_sum(self._prior.log_prob(v), axis=[1, 2]) for v in states])

    def num_predicting(self) -> tf.Tensor:
        """How many kept states of each chain predict: none where the chains were assigned others since."""
        moved = [tf.reduce_any(tf.not_equal(*pair)) for pair in zip(self.chains, self.left)]
        filled = tf.cast(tf.minimum(self.times_kept, self.num_kept), tf.int32)
        return tf.where(tf.reduce_any(moved), 0, filled)

    def states(self) -> list[tf.Tensor]:
        """
        All kept states, oldest first, [R', C, T_l, M_l] for each layer: the present ones alone, R' = 1,
        where none has been kept, or the chains were assigned others since, as GPflow's loops over samples do.
        """
        filled = self.num_predicting()
        first = tf.cast(self.times_kept % self.num_kept, tf.int32)
        full = self.times_kept > self.num_kept
        order = (tf.range(filled) + tf.where(full, first, 0)) % self.num_kept
        return [
            tf.ensure_shape(
                tf.cond(
                    filled > 0,
                    lambda kept=kept: tf.gather(kept, order),
                    lambda chain=chain: tf.convert_to_tensor(chain)[None],
                ),
                [None, *chain.shape],
            )
            for kept, chain in zip(self.kept, self.chains)
        ]

    def thinned(self, states: Sequence[tf.Tensor], num_samples: int) -> list[tf.Tensor]:
        """
        S of the states, spread evenly over chains and time, or each several times: [S, T_l, M_l].

        :param states: as :meth:`states` gives them.
        :param num_samples: S.
        """
        return [spread(tf.reshape(v, [-1, *v.shape[2:]]), num_samples) for v in states]


def _variables(parameters: Sequence[Parameter]) -> list[tf.Variable]:
    return [parameter.unconstrained_variable for parameter in parameters]


def spread(states: tf.Tensor, num_samples: int) -> tf.Tensor:
    """S of the states [R, T, M], evenly spread, or each of them several times: [S, T, M]."""
    return tf.gather(states, tf.range(num_samples) * tf.shape(states)[0] // num_samples)
