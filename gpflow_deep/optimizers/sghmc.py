r"""
Stochastic gradient Hamiltonian Monte Carlo with steps that adapt to each coordinate's scale.

Springenberg, Klein, Falkner & Hutter 2016, *Bayesian optimization with robust Bayesian neural networks*;
Chen, Fox & Guestrin 2014, *Stochastic gradient Hamiltonian Monte Carlo*. For a target
:math:`\propto e^{-U(v)}`, step size :math:`\epsilon` and friction :math:`\alpha`, every coordinate has the
step :math:`\eta = \epsilon^2 / \sqrt{s}`, s being the running average of its squared gradients:

.. math::
    p \leftarrow (1 - \alpha) p - \eta \hat{\nabla} U + N(0, 2 (\alpha - \beta) \eta),
    \quad v \leftarrow v + p .

In step t of the burn-in s is at least :math:`1 / t^2`: where a chain starts with next to no gradient, a step
from that alone would throw it so far away that it does not come back.

The average runs over a window that adapts too, :math:`t \leftarrow 1 + t (1 - g^2 / s)` with g the average
of the gradients: short while they point one way, long when they are noise.

A gradient of variance V, from minibatches and draws, brings noise of its own: :math:`\beta = \eta V / 2` of
it, which is left out, and where that is more than the friction takes up, the friction is raised to it. Else
the states would spread too far. From the last fifth of the burn-in on :math:`\eta` is small enough for
:math:`\beta` to be at most a fifth of the friction: all chains have the same minibatch, and its noise in one
coordinate goes with that in others, which V does not know. Chains with next to no noise of their own come
together.

V is a twentieth of the mean squared third difference of successive gradients. Their draws are independent,
and their states move smoothly: of what turns by :math:`\omega` a step there is :math:`\omega^6 / 20` left,
where a first difference would take :math:`\omega^2 / 2` of an exact gradient for noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import TensorType

from ..numerics.draws import standard_normals
from ..validation import check_number, check_positive_integer, check_positive_number, check_seed
from .replicas import average_over_replicas

__all__ = ["SGHMC"]

# Folded into seeds: it keeps the noise apart from a model's draws in the same step.
_NOISE = 2**31 - 3
_SEARCH_SHARE = 0.8  # of the burn-in; in the rest chains come to be as wide as the density
_OWN_SHARE = 0.2  # of the friction, that the gradient's own noise may take up then


class SGHMC(tf.Module):
    """
    Scale-adapted SGHMC on any variables whose first axis is one of independent chains.

    It is used as an optimiser is: :meth:`minimize` or :meth:`apply_gradients`, in a ``tf.function`` or not.
    The loss is the mean over the chains of each one's potential U, the negative log density of all data,
    or an unbiased estimate of it; the variables after each step are the chains' states. What other
    parameters the loss has so get the gradient of the chains' average from the same evaluation.

    A step is the same function of (seed, number of steps taken), whatever came before.

    Three chains on a standard normal density:

    >>> state = tf.Variable(tf.zeros([3, 1], tf.float64))
    >>> sampler = gd.optimizers.SGHMC(step_size=0.1)
    >>> loss = sampler.minimize(lambda: tf.reduce_mean(0.5 * tf.square(state)), [state])
    >>> bool(tf.reduce_all(state != 0.0))
    True

    :param step_size: epsilon. At the posterior's own scale a full gradient has the variance of its precision,
        so that a coordinate of precision c turns by epsilon c^(1/4) a step: it is to be well below 1.
    :param momentum_decay: alpha, in (0, 1]. The default is right to some percent for gradients of all data.
        The noise of minibatches makes steps small and chains slow: in 20,000 steps from a tenth of 5000
        points at a time, or a fifth of forty, deviations of a GP came to 0.6 to 1.0 of the exact ones.
        Whether chains have found their way, R-hat says. From a fifth of forty a step size of 0.03 and 0.05
        here leave deviations within a tenth.
    :param burn_in: steps during which scales are adapted, most of them in search of the density; afterwards
        scales stay, as the states are then a Markov chain.
    :param seed: of the noise.
    """

    def __init__(
        self,
        step_size: float = 0.05,
        momentum_decay: float = 0.01,
        *,
        burn_in: int = 2000,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.step_size = check_positive_number(step_size, "step_size")
        self.momentum_decay = check_number(momentum_decay, "momentum_decay", 0.0, 1.0)
        self.burn_in = check_positive_integer(burn_in, "burn_in")
        self.seed = check_seed(seed)
        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._slots: list[_Slot] = []

    def __repr__(self) -> str:
        names = ("step_size", "momentum_decay", "burn_in", "seed")
        return f"SGHMC({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Make momenta and averages for the variables, which then are always these."""
        if self._slots:
            if len(self._slots) != len(variables):
                raise ValueError(
                    f"variables: expected the {len(self._slots)} of the first step, got {len(variables)}."
                )
            return
        with tf.init_scope():
            self._slots = [_Slot(variable) for variable in variables]

    @tf.autograph.experimental.do_not_convert
    def minimize(self, loss_fn: Callable[[], tf.Tensor], variables: Sequence[Any]) -> tf.Tensor:
        """
        One step on a loss.

        :param loss_fn: the mean over the chains of their potentials, a function without arguments.
        :param variables: the chains' states, [C, ...] each: variables, or unconstrained GPflow parameters.
        :return: the loss before the step.
        """
        variables = [getattr(v, "unconstrained_variable", v) for v in variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = loss_fn()
        self.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[TensorType, tf.Variable]],
        skip_gradients_aggregation: bool = False,
        place: TensorType | None = None,
    ) -> None:
        """
        One step from gradients that are known.

        :param grads_and_vars: gradients of the loss, see :meth:`minimize`, and the variables they are of.
        :param skip_gradients_aggregation: whether they are averages over replicas already.
        :param place: in the burn-in and after it, where that is not told by the steps taken, as in a run of
            limited time.
        """
        gradients: Sequence[TensorType]
        gradients, variables = zip(*grads_and_vars)
        self.build(variables)
        if not skip_gradients_aggregation:
            changed = [*variables, self.iterations]
            gradients = average_over_replicas(gradients, changed, "grads_and_vars")
        seed = tf.stack([tf.constant(self.seed, tf.int64), self.iterations])
        seed = tf.random.experimental.stateless_fold_in(seed, _NOISE)
        noises = standard_normals([v.shape for v in variables], seed, variables[0].dtype)
        steps = tf.cast(1 + tf.minimum(self.iterations, self.burn_in), variables[0].dtype)
        place = self.iterations if place is None else place
        adapting = place < self.burn_in
        settling = place >= round(_SEARCH_SHARE * self.burn_in)
        for gradient, v, noise, slot in zip(gradients, variables, noises, self._slots):
            gradient = gradient * tf.cast(v.shape[0], v.dtype)  # each chain's own potential
            rate = tf.where(adapting, 1.0 / (slot.windows + 1.0), tf.zeros_like(v))

            def average(old: tf.Variable, new: tf.Tensor, rate: tf.Tensor = rate) -> tf.Tensor:
                return old.assign_add(rate * (new - old))

            mean = average(slot.means, gradient)
            square = tf.maximum(average(slot.squares, tf.square(gradient)), steps**-2.0)
            variance = average(slot.variances, slot.noise_variance(gradient))
            window = 1.0 + slot.windows * (1.0 - tf.square(mean) / square)
            slot.windows.assign(tf.where(adapting, window, slot.windows))
            eta = self.step_size**2 * tf.math.rsqrt(square)
            most = 2.0 * _OWN_SHARE * self.momentum_decay
            eta = tf.where(settling, most / tf.maximum(variance, most / eta), eta)
            # At rest the momenta have the variance eta: as they are, they would throw the states far off.
            shrinking = tf.where(settling, tf.sqrt(eta / slot.etas), tf.ones_like(eta))
            slot.etas.assign(eta)
            own = 0.5 * eta * variance  # of the friction: what the gradient's own noise takes up
            alpha = tf.minimum(tf.maximum(own, self.momentum_decay), 1.0)
            noise *= tf.sqrt(2.0 * eta * tf.maximum(alpha - own, 0.0))
            kept = (1.0 - alpha) * shrinking * slot.momenta
            p = slot.momenta.assign(kept - eta * gradient + noise)
            v.assign_add(p)
        self.iterations.assign_add(1)


class _Slot(tf.Module):
    """What is kept of each coordinate of a variable."""

    def __init__(self, variable: tf.Variable) -> None:
        super().__init__()

        def zeros() -> tf.Variable:
            return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False)

        def ones() -> tf.Variable:
            return tf.Variable(tf.ones(variable.shape, variable.dtype), trainable=False)

        self.momenta = zeros()
        self.last, self.second_last, self.third_last = zeros(), zeros(), zeros()
        self.means, self.squares, self.variances = zeros(), zeros(), zeros()
        self.etas = ones()  # of the step before
        # Of one step: the first gradient is half of the first scale.
        self.windows = ones()

    def noise_variance(self, gradient: tf.Tensor) -> tf.Tensor:
        """A draw of the variance of the gradient's noise; the gradient is remembered."""
        difference = gradient - 3.0 * self.last + 3.0 * self.second_last - self.third_last
        self.third_last.assign(self.second_last)
        self.second_last.assign(self.last)
        self.last.assign(gradient)
        return tf.square(difference) / 20.0
