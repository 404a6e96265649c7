"""One family, fitted to standardised rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_deep import training
from gpflow_deep.numerics.warning import warn_caller
from gpflow_deep.presets import Settings, get, scheduled
from gpflow_deep.presets.exact import ExactGP
from gpflow_deep.presets.registry import CONSTANT, EXACT, LINEAR, SITES
from gpflow_deep.presets.settings import CLASSES
from gpflow_deep.training.checkpoints import NoRoomError

from .calibration import Errors, left_out
from .constant import fit_constant
from .evidence import fit_exact, most_rows, named_objectives
from .few_rows import SECONDS_OF_PARTS, left_out_by_parts
from .fitted import FittedModel
from .labels import Labels, grow_label_forest, link_of, own_log_probabilities
from .linear import fit_linear
from .logistic import fit_logistic
from .rows import Rows
from .starting import start_from_labels, take_over
from .weighted import weighted_rows

__all__ = ["fit_family"]

_MOST_STEPS = 50_000
_PATIENCE = 8  # looks at held-out rows, of 25
_FEWEST_STEPS = 20  # that time is to leave; in fewer a model learns next to nothing
_QUICK_ROWS = 100  # of which the parts for a link take next to no time, and get it
_LABELS_SHARE = 0.2  # of the time, for initial values


def fit_family(
    name: str,
    settings: Settings,
    train: Rows,
    held_out: Rows | None,
    num_outputs: int,
    *,
    seed: int,
    steps: int | None = None,
    given: Mapping[str, Any] | None = None,
    seconds: float | None = None,
    most_seconds: float | None = None,
    start: FittedModel | None = None,
    of_labels: ExactGP | None = None,
    forest: bool = True,
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
    :param steps: of training, with a schedule to match; by default those of the settings, or as many as the
        time allows.
    :param given: settings that stay as they are, whatever the schedule says.
    :param seconds: not to be exceeded, but by an exact GP that still gains much; the link and the forest of
        one may take as many each.
    :param most_seconds: not to be exceeded by that one; as many as `seconds` by default.
    :param start: a fit of the same family, whose parameters are the initial ones.
    :param of_labels: that a model of classes starts from without such a fit; some rows tell one by default.
    :param forest: whether errors and labels of an exact GP, and errors of a constant, may be described by the
        inputs.
    :param checkpoint_dir: where an interrupted training is taken up.
    :param progress: whether to show a progress bar.
    :raises TrainingError: where the numerics fail.
    """
    started = time.perf_counter()
    preset = get(name)
    settings = preset.settings(settings)
    if settings.likelihood == "softmax":  # some of whose classes may have no row here
        settings = replace(settings, num_classes=num_outputs)
    tf.random.set_seed(seed)
    errors: Errors | None = None
    labels: Labels | None = None
    own_rows: np.ndarray | None = None
    if name == CONSTANT:
        most = len(train.X)
        if most_rows(seconds) < most_rows(None):
            most = min(most, most_rows(None))
        model, errors = fit_constant(train, settings, seed, most, seconds, forest)
        report: dict[str, float] = {"rows": most}
    elif name in EXACT:
        is_of_labels = settings.likelihood in CLASSES
        model, settings, errors = fit_exact(
            name,
            train,
            settings,
            seed,
            seconds,
            most_seconds,
            forest,
            inputs_may_go=not is_of_labels,
        )
        if is_of_labels:
            known = left_out(model)
            named = named_objectives(name, settings)
            limit = seconds
            if limit is not None and len(known.X) <= _QUICK_ROWS:
                limit = max(limit, SECONDS_OF_PARTS)
            apart = left_out_by_parts(model, known, 2, seed, limit, named)
            link = link_of(apart, seconds)
            grown = grow_label_forest(known, link, seed, seconds) if forest else None
            labels = Labels(link, grown)
            # Else there are these to judge by.
            if held_out is None and len(known.X) == len(train.X):
                own_rows = own_log_probabilities(apart, link, train, seed)
        report = {"rows": int(model.inputs.shape[0])}
    elif name == LINEAR and settings.likelihood == "gaussian":
        model, errors = fit_linear(train, settings, seed, seconds)
        report = {"rows": len(train.X)}
    elif name == LINEAR and settings.likelihood in CLASSES:
        model = preset.build(train.X, train.Y, settings, seed)
        fit_logistic(model, train, num_outputs, seed, seconds)
        report = {"rows": len(train.X)}
    else:
        if not preset.weights:
            train = train.repeated(name)
            held_out = held_out and held_out.repeated(name)
        if steps is not None or seconds is not None:
            settings = scheduled(settings, steps or _MOST_STEPS)
            if name in SITES:
                # What is trained for its predictive density overfits in the end, if not at once.
                settings = replace(settings, patience=_PATIENCE)
            settings = preset.settings(replace(settings, **(given or {})))
        model = preset.build(train.X, train.Y, settings, seed)
        knows = start is not None and not start.report.get("starved")
        if start is not None:
            take_over(model, start)
        elif settings.likelihood in CLASSES:
            limit = None if seconds is None else _LABELS_SHARE * seconds
            knows = start_from_labels(model, train, settings, seed, limit, of_labels)
        # What building took is not there for training.
        limit = None if seconds is None else max(seconds - (time.perf_counter() - started), 1e-3)
        report = _train(model, train, held_out, settings, seed, limit, checkpoint_dir, progress)
        if knows:
            report["starved"] = 0.0
    report["seconds"] = max(time.perf_counter() - started, report.get("seconds", 0.0))
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
        errors,
        labels,
        own_rows,
    )


def _train(
    model: Any,
    train: Rows,
    held_out: Rows | None,
    settings: Settings,
    seed: int,
    time_limit: float | None,
    checkpoint_dir: Path | None,
    progress: bool,
) -> dict[str, float]:
    weighted = any(np.any(rows.weights != 1.0) for rows in (train, held_out) if rows is not None)
    data, validation = (train.X, train.Y), held_out and (held_out.X, held_out.Y)
    options: dict[str, Any] = dict(
        settings.training(),
        time_limit=time_limit,
        seed=seed,
        progress=progress,
    )
    if weighted:
        data = train.X, np.hstack([train.Y, train.weights[:, None]])
        if held_out is not None:
            validation = held_out.X, np.hstack([held_out.Y, held_out.weights[:, None]])
    with weighted_rows(model, train.Y.shape[1]) if weighted else nullcontext():
        fit = partial(training.fit, model, data, validation_data=validation, **options)
        try:
            result = fit(checkpoint_dir=checkpoint_dir)
        except NoRoomError as error:
            # Other members may have taken their time already.
            warn_caller(f"{error} Training goes on without them.")
            result = fit(checkpoint_dir=None)
    return {
        "rows": len(train.X),
        "steps": result.steps,
        "best_step": result.best_step or result.steps,
        "seconds": result.seconds,  # of earlier runs too, if this one went on with one
        "starved": float(result.out_of_time and result.steps < _FEWEST_STEPS),
    }
