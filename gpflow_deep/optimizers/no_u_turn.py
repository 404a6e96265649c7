"""Hamiltonian Monte Carlo without U-turns, for models that are small enough for whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter, RegressionData

from ..models import SampledDeepGP
from ..numerics.compiled import compiled
from ..posteriors.mixture import Mixture
from ..validation import (
    check_num_data,
    check_number,
    check_positive_integer,
    check_positive_number,
    check_seed,
)

__all__ = ["NoUTurnSamples", "sample_no_u_turn"]


class NoUTurnSamples(NamedTuple):
    """
    What a run of :func:`sample_no_u_turn` came to.

    >>> number = gpflow.Parameter(1.0)
    >>> samples = gd.optimizers.NoUTurnSamples([number], [np.array([1.0, 2.0])], 0.8, 0)
    >>> samples.divergences
    0
    """

    parameters: list[Parameter]  # that were sampled
    values: list[np.ndarray]  # of each, constrained: [R, ...]
    acceptance: float  # mean probability; near the target's 0.8 where the step size has adapted
    divergences: int  # energies lost: of more than a few, the states are not to be trusted

    def mixture(self, predict: Callable[[], Mixture], num_states: int = 50) -> Mixture:
        """
        The mixture of predictions under as many of the states, hyperparameters included, which are the
        model's own while it predicts.

        :param predict: such as ``lambda: model.predict_y_mixture(Xnew)``. Draws of hidden layers follow the
            model's ``seed`` and are the same at every state: a few of them stay a few, however many states
            there are.
        :param num_states: evenly spread over the run.
        """
        before = [parameter.numpy() for parameter in self.parameters]
        R = len(self.values[0])
        try:
            parts = []
            for index in np.arange(min(num_states, R)) * R // min(num_states, R):
                self._assign([value[index] for value in self.values])
                parts.append(predict())
        finally:
            self._assign(before)
        means, variances, log_weights = zip(*parts)
        return Mixture(
            tf.concat(means, axis=0),
            tf.concat(variances, axis=0),
            tf.concat(log_weights, axis=0) - np.log(len(parts)),
        )

    def _assign(self, values: Sequence[np.ndarray]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.assign(value)


def sample_no_u_turn(
    model: SampledDeepGP,
    data: RegressionData,
    *,
    hyperparameters: bool = False,
    num_states: int = 500,
    num_burn_in: int = 300,
    num_draws: int = 8,
    step_size: float = 0.05,
    target_acceptance: float = 0.8,
    max_tree_depth: int = 8,
    seed: int = 0,
) -> NoUTurnSamples:
    """
    Sample a small deep GP by the no-U-turn sampler (Hoffman & Gelman 2014), its step size adapted in
    burn-in: what :class:`SGHMC` is to be compared with.

    The target is the model's ``log_joint`` with draws of the hidden layers that stay the same, and, with
    hyperparameters, GPflow's priors of these: those that are trainable and have a prior are sampled, all
    others stay as they are. It goes through ``gpflow.optimizers.SamplingHelper``.

    Without hyperparameters the model keeps the last states, of which its predictions then are. With
    hyperparameters every state has its own, so that predictions are
    ``samples.mixture(lambda: model.predict_y_mixture(Xnew))``; the model has the last state.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(), num_inducing=4)
    >>> model = gd.models.SampledDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_chains=1)
    >>> samples = gd.optimizers.sample_no_u_turn(
    ...     model, (X, Y), num_states=4, num_burn_in=2, num_draws=1, max_tree_depth=2
    ... )
    >>> 0.0 <= samples.acceptance <= 1.0
    True

    :param model: its chains are one state of the sampler, together.
    :param data: inputs [N, D] and targets [N, P], all of them.
    :param hyperparameters: whether to sample these too, of a model with one chain.
    :param num_states: R, after burn-in.
    :param num_burn_in: steps of burn-in.
    :param num_draws: of the hidden layers per point, the same for all chains.
    :param step_size: at the start.
    :param target_acceptance: mean acceptance probability that the step size is adapted to.
    :param max_tree_depth: a step has 2 to this power leaps at most.
    :param seed: of everything random.
    :raises TypeError: for another model.
    :raises ValueError: where there are no hyperparameters with priors, or several chains of one model's, or
        nothing to sample; a model that counts on another number of rows.
    """
    if not isinstance(model, SampledDeepGP):
        raise TypeError(f"model: expected a SampledDeepGP, got {type(model).__name__}.")
    q = model.inducing_posterior
    for name, number in (
        ("num_states", num_states),
        ("num_burn_in", num_burn_in),
        ("num_draws", num_draws),
        ("max_tree_depth", max_tree_depth),
    ):
        check_positive_integer(number, name)
    check_positive_number(step_size, "step_size")
    if not 0.0 < check_number(target_acceptance, "target_acceptance") < 1.0:
        raise ValueError(
            f"target_acceptance: expected a number between 0 and 1, got {target_acceptance!r}."
        )
    seed = check_seed(seed)
    check_num_data(model, len(data[0]))
    chains = [chain for chain in q.chains if chain.trainable]
    parameters = [*chains, *(_with_priors(model) if hyperparameters else [])]
    if not parameters:
        raise ValueError("model: expected trainable chains, or hyperparameters=True, got neither.")
    noise = model._same_draws(len(data[0]), num_draws, seed)
    data = model._check_data(data)
    helper = gpflow.optimizers.SamplingHelper(
        lambda: model._log_density_of_states(data, noise), parameters
    )
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
        tfp.mcmc.NoUTurnSampler(
            helper.target_log_prob_fn,
            tf.constant(step_size, gpflow.default_float()),
            max_tree_depth=max_tree_depth,
        ),
        num_adaptation_steps=int(0.8 * num_burn_in),
        target_accept_prob=tf.constant(target_acceptance, gpflow.default_float()),
    )

    def run() -> tuple[list[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
        return tfp.mcmc.sample_chain(
            num_states,
            helper.current_state,
            kernel=kernel,
            num_burnin_steps=num_burn_in,
            trace_fn=lambda _, result: (
                result.inner_results.log_accept_ratio,
                result.inner_results.has_divergence,
            ),
            seed=tf.constant([seed, 1]),
        )

    with _others_fixed(model, parameters):
        states, (log_accept_ratio, diverged) = compiled(run)()
    values = [value.numpy() for value in helper.convert_to_constrained_values(states)]
    samples = NoUTurnSamples(
        parameters,
        values,
        float(tf.reduce_mean(tf.minimum(tf.exp(log_accept_ratio), 1.0))),
        int(tf.reduce_sum(tf.cast(diverged, tf.int32))),
    )
    q.forget()
    for index in np.arange(num_states) if not hyperparameters else [num_states - 1]:
        samples._assign([value[index] for value in values])
        if not hyperparameters:
            q.keep()
    return samples


@contextmanager
def _others_fixed(model: SampledDeepGP, parameters: Sequence[Parameter]) -> Iterator[None]:
    """For a while, only these parameters are trainable: GPflow's helper has gradients for no others."""
    sampled = {id(parameter) for parameter in parameters}
    others = [p for p in model.trainable_parameters if id(p) not in sampled]
    gpflow.set_trainable(others, False)
    try:
        yield
    finally:
        gpflow.set_trainable(others, True)


def _with_priors(model: SampledDeepGP) -> list[Parameter]:
    """Trainable hyperparameters that have a prior."""
    if model.inducing_posterior.num_chains != 1:
        raise ValueError(
            "hyperparameters: expected a model with num_chains=1, whose chain has them for its own, got"
            f" {model.inducing_posterior.num_chains} chains."
        )
    chain = {id(v) for v in model.inducing_posterior.chains}
    found = [
        parameter
        for parameter in model.trainable_parameters
        if parameter.prior is not None and id(parameter) not in chain
    ]
    if not found:
        raise ValueError(
            "hyperparameters: expected some trainable parameter with a prior, such as"
            " model.likelihood.variance.prior = tfp.distributions.LogNormal(...), got none."
        )
    return found
