"""The chains of sampled models as part of a training step."""

from __future__ import annotations

__all__ = ["MovingChains", "moving_chains"]

from collections.abc import Callable, Sequence

import gpflow
import tensorflow as tf

from gpflow_deep.models import SampledDeepGP
from gpflow_deep.optimizers import SGHMC


class MovingChains:
    """
    The chains of a model, which a sampler moves a step at a time, and of whose states some are kept.

    It is called as natural gradients are. Scales adapt, and states are kept, by the steps taken, or by the
    place of a run in limited time where that is further on; it is set between calls of steps.

    :param sampler: what moves them.
    :param model: whose they are.
    :param steps: of the run.
    :param is_own: whether the sampler is a user's; else its burn-in is that of the run's first call, however
        many steps a later one asks for.
    """

    def __init__(self, sampler: SGHMC, model: SampledDeepGP, steps: int, is_own: bool) -> None:
        self.sampler, self.steps = sampler, steps
        self.burn_in = None if is_own else sampler.burn_in
        self.variables = model.inducing_posterior.variables_of_chains
        self.kept = model.inducing_posterior.variables_kept
        self.place = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._place_before = tf.Variable(0, dtype=tf.int64, trainable=False)
        sampler.build(self.variables)

    def __repr__(self) -> str:
        """The sampler's, but for a burn-in that nobody chose."""
        return repr(self.sampler).replace(f"burn_in={self.burn_in}", "burn_in=None")

    def start(self, place: int, burn_in: int | None) -> None:
        """
        Be where a run is.

        :param place: on its clock.
        :param burn_in: of a sampler that is not a user's.
        """
        self._place_before.assign(place)
        if burn_in is not None:
            self.sampler.burn_in = burn_in

    @property
    def iterations(self) -> tf.Variable:
        """Steps taken."""
        return self.sampler.iterations

    def apply_gradients(
        self, gradients: Sequence[tf.Tensor], model: SampledDeepGP, **averaged: bool
    ) -> None:
        """
        One step, and its state remembered for learning, and kept where it is time.

        :param gradients: of the loss with respect to `variables`.
        :param averaged: as for the sampler.
        """
        place = tf.maximum(self.sampler.iterations, self.place)
        self.sampler.apply_gradients(
            zip(gradients, self.variables, strict=True),
            place=place,
            **averaged,
        )
        q = model.inducing_posterior
        q.leave()
        q.remember(self.sampler.iterations - 1, self.sampler.seed)
        before = tf.maximum(self.sampler.iterations - 1, self._place_before)
        if self.steps - self.sampler.burn_in < model.keep_every * q.num_kept:
            # States of burn-in are none of the posterior's: where later ones would not push all of them out
            # by the end, they go at its end.
            begins = (before <= self.sampler.burn_in) & (place >= self.sampler.burn_in)
            _if(begins, q.forget)
        _if((place + 1) // model.keep_every > before // model.keep_every, q.keep)
        self._place_before.assign(place + 1)


def _if(condition: tf.Tensor, act: Callable[[], None]) -> None:
    def done() -> tf.Tensor:
        act()
        return tf.constant(True)

    tf.cond(condition, done, lambda: tf.constant(False))


def moving_chains(
    sampler: SGHMC | None, model: gpflow.models.BayesianModel, steps: int, seed: int
) -> MovingChains | None:
    """
    The chains of a model, ready to be moved; None for a model that has none, or whose are not trainable.

    :param sampler: None for one with the model's step size, and its share of the steps for burn-in.
    :raises TypeError: it is no sampler.
    :raises ValueError: the model has no chains for it.
    """
    if sampler is not None and not isinstance(sampler, SGHMC):
        raise TypeError(
            f"sampler: expected gpflow_deep.optimizers.SGHMC, got {type(sampler).__name__}."
        )
    if not isinstance(model, SampledDeepGP):
        if sampler is not None:
            raise ValueError(
                f"sampler: expected none for {type(model).__name__}, which has no chains, got {sampler!r}."
            )
        return None
    if not model.inducing_posterior.variables_of_chains:
        if sampler is not None:
            raise ValueError(
                "sampler: expected a model with trainable chains, got one whose are fixed."
            )
        return None
    is_own = sampler is not None
    if sampler is None:
        # Two thirds of 15 000 are 10 000, whatever rounding makes of them.
        burn_in = max(1, int(model.burn_in_share * steps + 1e-6))
        sampler = SGHMC(model.step_size, model.momentum_decay, burn_in=burn_in, seed=seed)
    return MovingChains(sampler, model, steps, is_own)
