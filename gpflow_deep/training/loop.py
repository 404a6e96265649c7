"""The training loop."""

from __future__ import annotations

__all__ = ["fit"]

import inspect
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.utilities import parameter_dict

from gpflow_deep.optimizers import SGHMC, NaturalGradient
from gpflow_deep.validation import (
    check_memory,
    check_num_data,
    check_positive_integer,
    check_positive_number,
    check_seed,
    check_share,
)

from .adam import Adam
from .averages import averaged, take_averages
from .chains import moving_chains
from .checkpoints import Checkpoints, check_directory
from .checks import check_data, check_tempering
from .clock import Clock, Decay, Pace, Tempering
from .data import Augmentation, Data, minibatches
from .descriptions import describe_model, describe_optimizer, describe_parameter
from .progress import FitResult, Progress, ProgressBar, TrainingError, fingerprint
from .replicas import Replicas
from .scales import far_columns, far_parameters
from .steps import Steps, build, natural_gradients
from .streams import Stream
from .validation import Validation

_COPIES = 5  # of each parameter: itself, its last value, its gradient and Adam's two moments
_MOST_LOST = 60.0  # seconds between checkpoints, however few steps they are


def fit(
    model: gpflow.models.BayesianModel,
    data: tuple[Any, Any] | tf.data.Dataset | Stream | Callable[[], Iterator[Any]],
    *,
    steps: int = 20_000,
    strategy: tf.distribute.Strategy | None = None,
    time_limit: float | None = None,
    batch_size: int | None = 512,
    augmentation: Augmentation | None = None,
    seed: int = 0,
    optimizer: Any = None,
    learning_rate: float = 0.005,
    decay_rate: float = 0.98,
    decay_steps: int = 1000,
    natural_gradient: float | NaturalGradient | None = None,
    sampler: SGHMC | None = None,
    tempering: Tempering | None = None,
    validation_data: tuple[Any, Any] | tf.data.Dataset | None = None,
    validation_fraction: float | None = None,
    validate_every: int = 500,
    patience: int | None = 10,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
    progress: bool = True,
    callback: Callable[[int, float], Any] | None = None,
    monitor: Callable[[int], Any] | None = None,
) -> FitResult:
    """
    Fit the trainable parameters of a model to data by stochastic gradients, in place.

    The defaults are the settings of Lindinger et al. (2020), *Beyond the Mean-Field: Structured
    Deep Gaussian Processes*. Minibatches and the random draws of step i depend on `seed` and i only
    (all that `draw_noise` draws, in a training loss of a class of yours too; what such a loss draws by
    itself is of TensorFlow's global generator), so a run that goes on from a checkpoint ends with the same
    parameters as one never interrupted: to the bit, where the device is deterministic. A run
    that was done and is given more steps has scored its last step as well, which is one score more than that
    of so many steps at once, where `validate_every` does not divide it.

    While it runs, `model.num_data` is the number of rows trained on, so that the objective is
    scaled rightly; afterwards it is what it was.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(1,), num_inducing=5)
    >>> model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.01))
    >>> result = gd.training.fit(model, (X, Y), steps=3, learning_rate=0.01, progress=False)
    >>> result.steps, result.history["loss"].shape
    (3, (3,))

    :param model: Any model with GPflow's `training_loss(data)`, such as a DeepGP or an SVGP.
    :param data: X [N, D] and Y [N, P], or [N] for one column, finite (with
        :class:`gpflow_deep.likelihoods.MissingOutputs`, Y may have NaN); cast to the float type of the
        model's parameters. Or a `tf.data.Dataset` of such pairs, in batches or row by row: it must
        have an end and fit into memory, since it is read once, and minibatches are drawn from all rows. Or a
        :class:`Stream`, or what it takes: a function that returns an iterator over pieces (rows counted
        in a first pass where `model.num_data` is None), or a pair of `np.memmap`, neither ever all in memory.
    :param steps: steps in all, those of a continued run included.
    :param strategy: `tf.distribute.MirroredStrategy` or `MultiWorkerMirroredStrategy`, in whose scope model
        and optimisers were made: every replica takes a share of each minibatch, and the result is that of one
        replica up to rounding. All workers make the same call, with all data, and call `callback` and
        `monitor`; the first alone shows progress and writes to `checkpoint_dir`, which all have to see.
    :param time_limit: seconds in all, those of compilation and of a continued run included; None: no limit.
        Where they run out first, the run ends as it would after its last step: scored, saved, the best
        parameters kept. What is due every so many steps, the decay too, then goes by the clock: half of the
        time counts as half of `steps`. How far a run gets depends on the machine.
    :param batch_size: rows in a minibatch (see :func:`minibatches`). None or at least N: all data.
    :param augmentation: changes each minibatch before it is trained on, called in a graph as
        augmentation(X, Y, seed) with two integers for `tf.random.stateless_*`: flips of images, say.
    :param seed: of the minibatches, the random draws and the validation split.
    :param optimizer: a Keras 3 or tf_keras optimiser in place of Adam with decay. With `use_ema`, what is
        validated, and what the model has in the end, are its averages. Where it scales the loss, it takes
        the steps that it would take without, save any that it skips.
    :param learning_rate: of Adam, at the start.
    :param decay_rate: Adam's learning rate is multiplied by this ...
    :param decay_steps: ... every so many steps.
    :param natural_gradient: natural gradients on the variational parameters, trainable or not, which the
        optimiser then leaves alone: an instance of :class:`gpflow_deep.optimizers.NaturalGradient`, or the
        step size in (0, 1] of one. Each step is one of both, from the same evaluation of the gradient.
    :param sampler: what moves the chains of a :class:`gpflow_deep.models.SampledDeepGP`, in every step and
        from the same evaluation of the gradient; by default :class:`gpflow_deep.optimizers.SGHMC` with
        the model's step size and three quarters of the steps for burn-in: of those of the first call, where
        later ones go on for longer. States are kept every `model.keep_every` steps; those of burn-in do not
        predict once it is over, however many are to be kept.
    :param tempering: weight of the divergences from the prior, step by step, in what is maximised.
    :param validation_data: a held-out pair; the score is the mean of `predict_log_density` there.
    :param validation_fraction: in its place, the share of `data` to hold out, drawn without
        replacement.
    :param validate_every: steps from one score to the next. The last step is scored, too.
    :param patience: stop after so many scores in a row without improvement; None: never. With
        validation, the parameters with the best score are kept, otherwise the last.
    :param checkpoint_dir: where the two latest checkpoints are kept. A call that finds a run there
        goes on with it, from the latest that is not damaged; a finished one gives its result at
        once. Step sizes and jitter may be others than before, so that a run that failed can go on;
        all else must be the same, the order of a dataset's rows too (no `shuffle()`: they are shuffled here),
        and the model's plain settings, priors and fixed numbers.
        Of a stream, the first piece, the number of rows and files' names and sizes are compared. One process
        at a time.
    :param checkpoint_every: steps from one checkpoint to the next. The last step has one, too, and where
        these are more than a minute apart, so has the first step after each minute.
    :param progress: whether to show a progress bar.
    :param callback: Called as callback(step, loss) after each step. What it returns counts for nothing; what
        it raises ends the run, and leaves the model with its last parameters: not the best, nor averages.
    :param monitor: a :class:`gpflow.monitor.Monitor`, or anything called as monitor(step).
    :raises TypeError: an argument of the wrong type.
    :raises ValueError: a wrong argument, data unfit for the model, a model made in the scope of another
        strategy, a checkpoint of another run.
    :raises OSError: `checkpoint_dir` cannot be written.
    :raises RuntimeError: another process is at the run in `checkpoint_dir`.
    :raises TrainingError: the numerics failed; it names the step and holds the parameters before. Or another
        worker is gone.
    """
    for name, whole in [
        ("steps", steps),
        ("batch_size", batch_size if batch_size is not None else 1),
        ("decay_steps", decay_steps),
        ("validate_every", validate_every),
        ("patience", patience if patience is not None else 1),
        ("checkpoint_every", checkpoint_every),
    ]:
        check_positive_integer(whole, name)
    check_seed(seed)
    learning_rate = check_positive_number(learning_rate, "learning_rate")
    decay_rate = check_share(decay_rate, "decay_rate")
    if validation_fraction is not None:
        check_share(validation_fraction, "validation_fraction")
    if time_limit is not None:
        check_positive_number(time_limit, "time_limit")
    _check_called(callback, "callback", step=1, loss=1.0)
    _check_called(monitor, "monitor", step=1)
    check_tempering(tempering, model)
    replicas = Replicas(strategy)
    if checkpoint_dir is not None:
        check_directory(checkpoint_dir, replicas.is_chief)
    train, held_out = check_data(model, data, validation_data, validation_fraction, seed)
    replicas.check(model, optimizer, natural_gradient, sampler)
    with replicas.scope():
        natural, q_variables = natural_gradients(natural_gradient, model)
        chains = moving_chains(sampler, model, steps, seed)
        decay = None
        if optimizer is None:
            decay = Decay(learning_rate, int(decay_steps), decay_rate)
            optimizer = Adam(decay)
        elif isinstance(optimizer, type) or not (
            hasattr(optimizer, "apply_gradients") and hasattr(optimizer, "build")
        ):
            legacy = isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer)
            raise TypeError(
                f"optimizer: expected a Keras optimiser, got {optimizer!r}."
                + (" Those of optimizers.legacy are not supported." if legacy else "")
            )
    if chains is not None:
        q_variables = chains.variables
    q_ids = {id(variable) for variable in q_variables}
    variables = [variable for variable in model.trainable_variables if id(variable) not in q_ids]
    if not variables and not q_variables:
        raise ValueError("model: expected trainable parameters, got none.")
    numbers = sum(int(np.prod(variable.shape)) for variable in [*variables, *q_variables])
    what = f"{numbers:,} parameters to train with {_COPIES} copies of each"
    check_memory(_COPIES * numbers, what, "model")
    if isinstance(train, Stream):
        # Counted after all other checks: it may take long.
        num_data, first = train.num_data, train.first
        check_num_data(model, num_data)
        identity = f" of {num_data}{train.identity}"
    else:
        num_data, first, identity = len(train[0]), train, ""
    settings = dict(
        seed=int(seed),
        batch_size=replicas.check_batch_size(min(int(batch_size or num_data), num_data)),
        optimizer=describe_optimizer(optimizer),
        natural_gradient=natural and repr(natural),
        sampler=chains and repr(chains),
        tempering=tempering and repr(tempering),
        augmentation=None if augmentation is None else _name(augmentation),
        validate_every=validate_every if held_out else None,
        data=fingerprint(first) + identity,
        validation_data=fingerprint(held_out) if held_out else None,
        model=describe_model(model),
        parameters={
            path: describe_parameter(parameter) for path, parameter in parameter_dict(model).items()
        },
    )
    run = Progress(
        settings=json.loads(json.dumps(settings, default=str)),
        burn_in=chains.burn_in if chains is not None else None,
    )
    with replicas.scope():
        build(optimizer, variables)
        everything = [*variables, *q_variables, *(chains.kept if chains else [])]
        validation = Validation(model, held_out, everything) if held_out else None
    checkpoints = (
        Checkpoints(
            checkpoint_dir,
            run,
            model,
            optimizer,
            validation.best if validation else (),
            chains and chains.sampler,
            is_writer=replicas.is_chief,
        )
        if checkpoint_dir is not None
        else None
    )
    is_bound = hasattr(model, "elbo") and not getattr(model, "predictive_objective", False)
    objective = "log joint" if chains else "elbo" if is_bound else "objective"
    with checkpoints or nullcontext(), replicas.watched(run):
        if checkpoints:
            checkpoints.restore(steps)
        replicas.check_agreement(run)
        batches = iter(minibatches(train, batch_size, seed, run.step, augmentation))
        with replicas.scope():
            stepper = Steps(
                model,
                batches,
                optimizer,
                variables,
                chains or natural,
                q_variables,
                seed,
                run.step,
                replicas,
                tempering,
            )
        clock, pace = Clock(int(steps), time_limit), Pace()
        started, saved = time.perf_counter() - run.seconds, run.seconds
        place = clock.place(run.step, run.seconds)
        if chains is not None:
            chains.start(place, run.burn_in)
        count = 1
        hidden = not (progress and replicas.is_chief)
        with (
            _num_data(model, num_data),
            train.own_failures() if isinstance(train, Stream) else nullcontext(),
            _advice(model, first, checkpoints),
            ProgressBar(objective, steps, place, time_limit, hidden) as bar,
        ):
            while place < steps and not run.out_of_patience(patience):
                # A call ends where something is due; results do not depend on where calls end.
                validate_at = _due(place, validate_every, steps) if validation else steps
                save_at = _due(place, checkpoint_every, steps) if checkpoints else steps
                count = min(count, validate_at - place, save_at - place)
                for part in (decay, chains, stepper):
                    if part is not None:
                        part.place.assign(place)
                pace.start()
                run.losses += stepper.take(count)
                # All workers go by the same clock, or they would not take the same steps.
                run.seconds, seconds_per_step = replicas.agree(
                    time.perf_counter() - started, pace.seconds() / count
                )
                run.times.append((run.step, run.seconds))
                count = 1 if callback or monitor else pace.count(seconds_per_step)
                place = clock.place(run.step, run.seconds)
                overdue = checkpoints is not None and run.seconds - saved >= _MOST_LOST
                if place >= min(validate_at, save_at) or overdue:
                    stepper.check_parameters()
                if validation and place >= validate_at:
                    with averaged(optimizer, variables):
                        (score,) = replicas.agree(stepper.score(validation))
                        run.validations.append((run.step, score))
                        if run.best == (run.step, score):
                            validation.keep()
                bar.show(run, place)
                run.seconds = time.perf_counter() - started
                if checkpoints and (place >= save_at or overdue or run.out_of_patience(patience)):
                    checkpoints.save()
                    saved = run.seconds
                if callback:
                    callback(run.step, run.losses[-1])
                if monitor:
                    monitor(run.step)
    if validation:
        validation.restore()
    else:
        take_averages(optimizer, variables)
    out_of_time = run.step < steps and not run.out_of_patience(patience)
    return run.result(patience, out_of_time)


def _check_called(function: Any, name: str, **arguments: Any) -> None:
    if function is None:
        return
    what = type(function).__name__
    if not callable(function):
        raise TypeError(f"{name}: expected a function, got {what}.")
    try:
        inspect.signature(function).bind(*arguments.values())
    except TypeError as error:
        other = " That is for `monitor`." if isinstance(function, gpflow.monitor.Monitor) else ""
        raise TypeError(
            f"{name}: expected a function of ({', '.join(arguments)}), got {what}: {error}.{other}"
        ) from error
    except ValueError:  # of some built-in ones nothing is known
        pass


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _due(step: int, every: int, last: int) -> int:
    """The next step at which a thing is due that is done every so often and at the last step."""
    return min((step // every + 1) * every, last)


@contextmanager
def _advice(
    model: gpflow.models.BayesianModel, data: Data, checkpoints: Checkpoints | None
) -> Iterator[None]:
    """Let the error of training that failed name what is likely to blame, and how to go on."""
    try:
        yield
    except TrainingError as error:
        lines = [str(error)]
        suspects = [
            *far_parameters(model),
            *(text for part, array in zip("XY", data) for text in far_columns(array, part)),
        ]
        if suspects:
            lines.append(f"Far from one: {'; '.join(suspects)}.")
        if checkpoints:
            lines.append(
                "The same call with another step size or jitter goes on from the last checkpoint."
            )
        message = "\n".join(lines)
        raise TrainingError(message, error.step, error.loss, error.parameters) from error.__cause__


@contextmanager
def _num_data(model: gpflow.models.BayesianModel, num_data: int) -> Iterator[None]:
    """For a while, let the model scale the likelihood to this number of points."""
    if not hasattr(model, "num_data"):
        yield
        return
    before = model.num_data
    model.num_data = num_data
    try:
        yield
    finally:
        model.num_data = before
