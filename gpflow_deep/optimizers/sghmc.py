r"""
Stochastic gradient Hamiltonian Monte Carlo with steps that adapt to each coordinate's scale.

Springenberg, Klein, Falkner & Hutter 2016, *Bayesian optimization with robust Bayesian neural networks*; Chen,
Fox & Guestrin 2014, *Stochastic gradient Hamiltonian Monte Carlo*. For a target :math:`\propto e^{-U(v)}`,
step size :math:`\epsilon` and momentum decay :math:`\alpha`, every coordinate has the step
:math:`\eta = \epsilon^2 / \sqrt{s}`, s being the running average of its squared gradients:

.. math::
    p \leftarrow (1 - \alpha) p - \eta \nabla U + N(0, 2 \alpha \eta), \quad v \leftarrow v + p .

The average runs over a window that adapts too, :math:`t \leftarrow 1 + t (1 - g^2 / s)` with g the average
of the gradients: short while they point one way, long when they are noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import TensorType

from ..numerics.draws import standard_normals
from ..validation import check_number, check_positive_integer, check_positive_number

__all__ = ["SGHMC"]


class SGHMC(tf.Module):
    """
    Scale-adapted SGHMC on any variables whose first axis is one of independent chains.

    It is used as an optimiser is: :meth:`minimize` or :meth:`apply_gradients`, in a ``tf.function`` or not.
    The loss is the mean over the chains of each one's potential U, the negative log density of all data,
    or an unbiased estimate of it; the variables after each step are the chains' states. What other
    parameters the loss has so get the gradient of the chains' average from the same evaluation.

    A step is the same function of (seed, number of steps taken), whatever came before.

    :param step_size: epsilon. At the posterior's own scale a full gradient has the variance of its precision,
        so that a coordinate of precision c turns by epsilon c^(1/4) a step: it is to be well below 1.
    :param momentum_decay: alpha, in (0, 1].
    :param burn_in: steps during which scales are adapted; afterwards they stay, as the states are then a
        Markov chain.
    :param seed: of the noise.
    """

    def __init__(
        self,
        step_size: float = 0.01,
        momentum_decay: float = 0.05,
        *,
        burn_in: int = 2000,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.step_size = check_positive_number(step_size, "step_size")
        self.momentum_decay = check_number(momentum_decay, "momentum_decay", 0.0, 1.0)
        self.burn_in = check_positive_integer(burn_in, "burn_in")
        self.seed = check_positive_integer(seed + 1, "seed + 1") - 1
        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._slots: dict[str, list[tf.Variable]] = {}

    def __repr__(self) -> str:
        names = ("step_size", "momentum_decay", "burn_in", "seed")
        return f"SGHMC({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Make momenta and averages for the variables, which then are always these."""
        if self._slots:
            if len(self.momenta) != len(variables):
                raise ValueError(
                    f"variables: expected the {len(self.momenta)} of the first step, got {len(variables)}."
                )
            return
        with tf.init_scope():
            # A window of one step: the first gradient is then taken for the scale.
            for name, start in (
                ("momenta", 0.0),
                ("windows", 1.0),
                ("means", 0.0),
                ("squares", 0.0),
            ):
                self._slots[name] = [
                    tf.Variable(tf.fill(v.shape, tf.cast(start, v.dtype)), trainable=False)
                    for v in variables
                ]

    @property
    def momenta(self) -> list[tf.Variable]:
        """p of each variable, after the first step."""
        return self._slots["momenta"]

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
    def apply_gradients(self, grads_and_vars: Iterable[tuple[TensorType, tf.Variable]]) -> None:
        """
        One step from gradients that are known.

        :param grads_and_vars: gradients of the loss, see :meth:`minimize`, and the variables they are of.
        """
        gradients, variables = zip(*grads_and_vars)
        self.build(variables)
        seed = tf.stack([tf.constant(self.seed, tf.int64), self.iterations])
        noises = standard_normals([v.shape for v in variables], seed, variables[0].dtype)
        adapting = self.iterations < self.burn_in
        slots = zip(*(self._slots[name] for name in ("momenta", "windows", "means", "squares")))
        for gradient, v, noise, (p, t, g, s) in zip(gradients, variables, noises, slots):
            gradient = gradient * tf.cast(v.shape[0], v.dtype)  # each chain's own potential
            rate = tf.where(adapting, 1.0 / (t + 1.0), tf.zeros_like(t))
            # In this order: g and s of one step, the window for the next.
            mean, square = (
                average.assign_add(rate * (new - average))
                for average, new in ((g, gradient), (s, tf.square(gradient)))
            )
            square = tf.maximum(square, square.dtype.as_numpy_dtype(1e-12))
            t.assign(tf.where(adapting, 1.0 + t * (1.0 - tf.square(mean) / square), t))
            eta = self.step_size**2 * tf.math.rsqrt(square)
            alpha = self.momentum_decay
            noise *= tf.sqrt(2.0 * alpha * eta)
            v.assign_add(p.assign((1.0 - alpha) * p - eta * gradient + noise))
        self.iterations.assign_add(1)
