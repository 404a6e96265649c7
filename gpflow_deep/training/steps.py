"""Compiled training steps."""

from __future__ import annotations

__all__ = ["Steps", "build", "natural_gradients"]

from collections.abc import Sequence
from numbers import Real
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.utilities import read_values

from gpflow_deep.likelihoods.monte_carlo import nodes_of_seed
from gpflow_deep.models.draws import draws_of_seed
from gpflow_deep.numerics.compiled import compiled
from gpflow_deep.optimizers import NaturalGradient

from .chains import MovingChains
from .checks import has_own_loss
from .clock import Tempering
from .progress import TrainingError
from .replicas import Replicas
from .validation import Validation

_ADVICE = (
    "The model has its last parameters with a finite loss and gradient. Things to try: a lower "
    "learning rate or natural gradient step, more jitter (gpflow.config.set_default_jitter), "
    "float64. Duplicated rows, and columns far from unit scale, are common causes in the data."
)


def natural_gradients(
    natural_gradient: float | NaturalGradient | None, model: gpflow.models.BayesianModel
) -> tuple[NaturalGradient | None, list[tf.Variable]]:
    """
    The optimiser of the variational parameters, and the variables that it updates in a model.

    :param natural_gradient: a step size, an optimiser, or None for no such updates.
    :raises ValueError: the model has no Gaussian posterior that it can update.
    """
    if natural_gradient is None:
        return None, []
    if not isinstance(natural_gradient, Real | NaturalGradient):
        kind = type(natural_gradient)
        raise TypeError(
            "natural_gradient: expected a step size or gpflow_deep.optimizers.NaturalGradient, got"
            f" {kind.__module__}.{kind.__name__}."
        )
    try:
        if not isinstance(natural_gradient, NaturalGradient):
            natural_gradient = NaturalGradient(natural_gradient)
        return natural_gradient, natural_gradient.variables_of(model)
    except ValueError as error:
        _, _, message = str(error).partition(": ")  # it names an argument that is not the user's
        raise ValueError(f"natural_gradient: {message}") from error


def build(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """
    Make what an optimiser keeps of the variables that it is to update.

    :raises ValueError: it cannot update them.
    """
    try:
        optimizer.build(variables)
    except (AttributeError, TypeError) as error:  # some ask for what only variables of Keras 3 have
        raise ValueError(
            f"optimizer: expected one that can update GPflow's variables, got {_name_of(optimizer, error)}"
        ) from error


class Steps:
    """
    The steps of one run: each one evaluation of loss and gradient, and an update by the optimiser and, if
    wanted, by natural gradients.

    Several steps run in one call of one `tf.function`, which halves the time of a small model's
    step. The parameters before each update are kept, and no update is made with a loss or a
    gradient that is not finite, so a failure can always be undone.

    :param model: the model.
    :param batches: iterator of minibatches, at the batch of step `start`.
    :param optimizer: a Keras optimiser, built for `variables`.
    :param variables: what the optimiser updates.
    :param natural_gradient: the optimiser, or sampler, of the model's posterior; None for no such updates.
    :param q_variables: what it updates.
    :param seed: step i takes the random draws of (seed, i).
    :param start: steps taken before.
    :param replicas: that take each step together, as one of them would up to rounding.
    :param tempering: of the model's divergences; None for no such weight.
    """

    def __init__(
        self,
        model: gpflow.models.BayesianModel,
        batches: Any,
        optimizer: Any,
        variables: Sequence[tf.Variable],
        natural_gradient: NaturalGradient | MovingChains | None,
        q_variables: Sequence[tf.Variable],
        seed: int,
        start: int,
        replicas: Replicas,
        tempering: Tempering | None,
    ) -> None:
        self._model = model
        self._batches = batches
        self._optimizer = optimizer
        self._variables = list(variables)
        self._natural_gradient = natural_gradient
        if natural_gradient is not None:
            natural_gradient.iterations.assign(start)
        self._seed = seed
        self._replicas = replicas
        self._tempering = tempering
        #: Of the run on its clock, set between calls.
        self.place = tf.Variable(start, dtype=tf.int64, trainable=False)
        self._step = tf.Variable(start, dtype=tf.int64, trainable=False)
        self._updated = [*self._variables, *q_variables]
        self._previous = [tf.Variable(variable, trainable=False) for variable in self._updated]
        # On self, which lives as long as the run: a model that held it could not be deep-copied.
        self._take = compiled(self._take_in_graph)

    def take(self, count: int) -> list[float]:
        """
        Take `count` steps.

        :return: the loss of each, before its update.
        :raises TrainingError: one of them failed.
        """
        try:
            losses, finite = self._take(tf.constant(count))
        except tf.errors.InvalidArgumentError as error:
            raise self.failure(_reason(error), int(self._step.numpy()) + 1) from error
        losses = losses.numpy().tolist()
        if not finite:
            what = "the loss" if not np.isfinite(losses[-1]) else "the gradient"
            what = f"{what} is not finite (loss {losses[-1]})."
            raise self.failure(what, int(self._step.numpy()) + 1, losses[-1])
        return losses

    def check_parameters(self) -> None:
        """Raise a TrainingError unless all parameters are finite."""
        if not all(np.isfinite(variable.numpy()).all() for variable in self._updated):
            raise self.failure(
                "its update left parameters that are not finite.", int(self._step.numpy())
            )

    def score(self, validation: Validation) -> float:
        """
        Score the present parameters.

        :raises TrainingError: they cannot predict.
        """
        try:
            score = validation.score()
        except tf.errors.InvalidArgumentError as error:
            raise self.failure(
                f"the validation failed. {_reason(error)}", int(self._step.numpy())
            ) from error
        if np.isnan(score):
            raise self.failure("the validation score is NaN.", int(self._step.numpy()))
        return score

    def failure(self, what: str, step: int, loss: float = float("nan")) -> TrainingError:
        """Undo the last update; the error that says so."""
        for variable, value in zip(self._updated, self._previous, strict=True):
            variable.assign(value)
        if isinstance(self._natural_gradient, MovingChains):
            self._model.inducing_posterior.leave()
        message = f"Training failed at step {step}: {what}\n{_ADVICE}"
        return TrainingError(message, step, loss, read_values(self._model))

    def _take_in_graph(self, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        dtype = self._updated[0].dtype

        def body(
            i: tf.Tensor, finite: tf.Tensor, losses: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
            loss, finite = self._one_step()
            return i + 1, finite, losses.write(i, tf.cast(loss, dtype))

        taken, finite, losses = tf.while_loop(
            lambda i, finite, _: finite & (i < count),
            body,
            (0, True, tf.TensorArray(dtype, size=count, element_shape=())),
            parallel_iterations=1,
        )
        return losses.stack()[:taken], finite

    def _one_step(self) -> tuple[tf.Tensor, tf.Tensor]:
        batch = self._batches.get_next()
        loss, gradients, finite = self._replicas.run(self._evaluate, batch)

        def update() -> tf.Tensor:
            scale = self._loss_scale()
            message = "optimizer: its loss scale is not finite"
            # With an infinite one it would skip this step and all that follow, without a word.
            checks = [] if scale is None else [tf.debugging.assert_all_finite(scale, message)]
            with tf.control_dependencies(checks):
                self._replicas.run(self._update, gradients, scale)
            return tf.constant(True)

        # Loss and gradient are of the same parameters: what `previous` holds is known to be good.
        finite = tf.cond(self._replicas.first(finite), update, lambda: tf.constant(False))
        return self._replicas.first(loss), finite

    def _evaluate(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[Any, list[tf.Tensor], Any]:
        """In a replica: loss and gradients, and whether they are finite, the same in all replicas."""
        own = tuple(self._replicas.share(part) for part in batch)
        noise = self._noise(batch[0].shape[0], own[0].shape[0])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._updated)
            loss = self._loss(own, noise)
        gradients = tape.gradient(
            loss, self._updated, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        # Every replica's loss estimates that of all data, with all of the divergence in it: so does the mean.
        loss, *gradients = self._replicas.mean([loss, *gradients])
        finite = tf.reduce_all(
            [tf.reduce_all(tf.math.is_finite(value)) for value in [loss, *gradients]]
        )
        return loss, gradients, finite

    def _noise(self, batch_size: int, own_size: int) -> Any:
        """
        The model's draws for this step, if it has any.

        Every replica makes those of the whole batch and takes those of its points, so that they do not depend
        on the number of replicas. Draws of inducing outputs are the same in all of them.
        """
        if not hasattr(self._model, "draw_noise") or has_own_loss(self._model):
            return None
        seed = self._seed_of_step()
        whole = self._model.draw_noise(batch_size, seed=seed)
        if own_size == batch_size:
            return whole
        sizes = self._model.draw_noise(own_size, seed=seed)  # only their shapes are used

        def own(draws: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
            axes = [axis for axis, n in enumerate(size.shape) if n != draws.shape[axis]]
            return self._replicas.share(draws, axes[0]) if axes else draws

        return tf.nest.map_structure(own, whole, sizes)

    def _loss(self, batch: tuple[tf.Tensor, ...], noise: Any) -> tf.Tensor:
        options = {} if noise is None else {"noise": noise}
        if self._tempering is not None:
            options["tempering"] = self._tempering(tf.maximum(self._step, self.place))
        seed = self._seed_of_step()
        # A loss of the model's own takes draws that it is not given.
        with nodes_of_seed(seed), draws_of_seed(self._replicas.own_seed(seed)):
            if not options:
                return self._model.training_loss(batch)
            objective = self._model.maximum_log_likelihood_objective(batch, **options)
        return -(objective + self._model.log_prior_density())

    def _seed_of_step(self) -> tf.Tensor:
        return tf.stack([tf.constant(self._seed, tf.int64), self._step])

    def _loss_scale(self) -> tf.Tensor | None:
        """
        What the optimiser divides gradients by, as if the loss had been multiplied by it; None for nothing.

        Those of tf_keras divide only where they are told to.
        """
        one = tf.ones((), self._updated[0].dtype)
        scale_loss = getattr(self._optimizer, "scale_loss", None)
        scale = one if scale_loss is None else scale_loss(one)
        return None if scale is one else scale

    def _update(self, gradients: Sequence[tf.Tensor], scale: tf.Tensor | None) -> None:
        """In a replica: one step of its copies."""
        # They are averaged already. The optimisers of Keras 3 do not know the word; they are for one replica.
        averaged = {"skip_gradients_aggregation": True} if self._replicas.number > 1 else {}
        for previous, variable in zip(self._previous, self._updated, strict=True):
            previous.assign(variable)
        others = len(self._variables)
        if self._variables:
            own = gradients[:others]
            if scale is not None:
                # Where that overflows, a `LossScaleOptimizer` skips the step and halves its scale.
                own = [tf.convert_to_tensor(g) * tf.cast(scale, g.dtype) for g in own]
            pairs = zip(own, self._variables, strict=True)
            try:
                self._optimizer.apply_gradients(pairs, **averaged)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    "optimizer: expected one that can update all trainable parameters, new or made for them,"
                    f" got {_name_of(self._optimizer, error)}"
                ) from error
        if self._natural_gradient is not None:
            self._natural_gradient.apply_gradients(gradients[others:], self._model, **averaged)
        self._step.assign_add(1)


def _name_of(optimizer: Any, error: Exception) -> str:
    """Of an optimiser, with what it said."""
    return f"{type(optimizer).__name__}: {' '.join(map(str, error.args))}"


def _reason(error: tf.errors.InvalidArgumentError) -> str:
    """What an operation said, without the stack trace that TensorFlow puts before it."""
    return str(error).split("\n\n")[-1].split("\n\t [[")[0]
