"""One family, fitted to standardised rows."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_deep import training
from gpflow_deep.numerics.compiled import compiled
from gpflow_deep.presets import Settings, get, scheduled

from .evidence import fit_exact
from .fitted import FittedModel, variables_of
from .rows import Rows
from .weighted import weighted_rows

__all__ = ["fit_family"]

_FEWEST_STEPS, _MOST_STEPS = 50, 50_000


def fit_family(
    name: str,
    settings: Settings,
    train: Rows,
    held_out: Rows | None,
    num_outputs: int,
    *,
    seed: int,
    steps: int | None = None,
    seconds: float | None = None,
    start: FittedModel | None = None,
    checkpoint_dir: Path | None = None,
    progress: bool = False,
) -> FittedModel:
    """
    Build and train a model.

    :param name: of its preset.
    :param settings: of model and training.
    :param train: rows to train on, standardised.
    :param held_out: rows by whose log density the best parameters are chosen; ``None`` for the last ones.
    :param num_outputs: columns of the targets, or number of classes.
    :param seed: of everything random.
    :param steps: of training, with a schedule to match; by default those of the settings.
    :param seconds: in their place, as many steps as fit in.
    :param start: a fit of the same family and size, whose parameters are the initial ones.
    :param checkpoint_dir: where an interrupted training is taken up.
    :param progress: whether to show a progress bar.
    :raises TrainingError: where the numerics fail.
    """
    started = time.perf_counter()
    preset = get(name)
    settings = preset.settings(settings)
    tf.random.set_seed(seed)
    if name == "gp":
        model, settings = fit_exact(train, settings, seed, seconds)
        report: dict[str, float] = {"rows": len(train.X)}
    else:
        if not preset.weights:
            train = train.repeated(name)
        model = preset.build(train.X, train.Y, settings, seed)
        if steps is not None:
            settings = scheduled(settings, steps)
        elif seconds is not None:
            settings = _in_time(model, train, settings, seconds, checkpoint_dir)
        if start is not None:
            _take_over(model, start)
        report = _train(model, train, held_out, settings, seed, checkpoint_dir, progress)
    report["seconds"] = time.perf_counter() - started
    return FittedModel(
        name,
        settings,
        seed,
        train.X.shape[1],
        num_outputs,
        np.dtype(gpflow.default_float()).name,
        gpflow.config.default_jitter(),
        model,
        report,
    )


def _train(
    model: Any,
    train: Rows,
    held_out: Rows | None,
    settings: Settings,
    seed: int,
    checkpoint_dir: Path | None,
    progress: bool,
) -> dict[str, float]:
    weighted = bool(np.any(train.weights != 1.0))
    data, validation = (train.X, train.Y), held_out and (held_out.X, held_out.Y)
    options: dict[str, Any] = dict(
        steps=settings.steps,
        batch_size=settings.batch_size,
        seed=seed,
        learning_rate=settings.learning_rate,
        decay_rate=settings.decay_rate,
        decay_steps=settings.decay_steps,
        natural_gradient=settings.natural_gradient or None,
        validate_every=settings.validate_every,
        patience=settings.patience,
        checkpoint_dir=checkpoint_dir,
        progress=progress,
    )
    if weighted:
        data = train.X, np.hstack([train.Y, train.weights[:, None]])
        if held_out is not None:
            validation = held_out.X, np.hstack([held_out.Y, held_out.weights[:, None]])
        with weighted_rows(model, train.Y.shape[1]):
            result = training.fit(model, data, validation_data=validation, **options)
    else:
        result = training.fit(model, data, validation_data=validation, **options)
    return {
        "rows": len(train.X),
        "steps": result.steps,
        "best_step": result.best_step or result.steps,
    }


def _in_time(
    model: Any, train: Rows, settings: Settings, seconds: float, checkpoint_dir: Path | None
) -> Settings:
    """The schedule that fits into so many seconds; the same again for a run that is taken up."""
    note = checkpoint_dir.with_name(f"{checkpoint_dir.name}-steps.json") if checkpoint_dir else None
    if note is not None and note.exists():
        return scheduled(settings, json.loads(note.read_text()))
    tracing, one = _seconds_per_step(model, train, settings.batch_size)
    steps = int(np.clip((seconds - 2.0 * tracing) / one, _FEWEST_STEPS, _MOST_STEPS))
    if note is not None:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(steps))
    return scheduled(settings, steps)


def _seconds_per_step(model: Any, train: Rows, batch_size: int) -> tuple[float, float]:
    """How long the first evaluation of the objective's gradient takes, which compiles it, and the next."""
    batch = train.X[:batch_size], train.Y[:batch_size]
    variables = model.trainable_variables

    @compiled
    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss(batch)
        return [g for g in tape.gradient(loss, variables) if g is not None]

    times = []
    for _ in range(4):
        started = time.perf_counter()
        gradients()[0].numpy()
        times.append(time.perf_counter() - started)
    return times[0], float(np.median(times[1:]))


def _take_over(model: Any, start: FittedModel) -> None:
    """Initial values from another fit, where the shapes are the same."""
    new = variables_of(model)
    for path, old in start.variables().items():
        if path in new and new[path].shape == old.shape:
            new[path].assign(old)
