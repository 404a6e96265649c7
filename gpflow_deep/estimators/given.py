"""Parameters of an estimator, and settings that it is given in place of those that follow from the data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from os import PathLike
from typing import Any

from sklearn.utils import check_random_state

from gpflow_deep import presets
from gpflow_deep.presets import Settings
from gpflow_deep.presets.registry import CONSTANT
from gpflow_deep.presets.settings import OWN_SETTINGS
from gpflow_deep.validation import (
    check_choice,
    check_flag,
    check_number,
    check_positive_integer,
    check_positive_number,
)

__all__ = ["check_parameters", "given_settings", "given_steps"]


def given_settings(estimator: Any) -> dict[str, Any]:
    """By name; not the steps, of which a schedule follows."""
    given = {"num_inducing": estimator.num_inducing, "kernel": estimator.kernel}
    given |= dict(estimator.settings or {})
    return {key: value for key, value in given.items() if value is not None and key != "steps"}


def given_steps(estimator: Any) -> int | None:
    """The number of steps, which may be one of the settings."""
    steps: int | None = estimator.steps or (estimator.settings or {}).get("steps")
    return steps


def check_parameters(estimator: Any) -> int:
    """
    Check all that does not depend on the data.

    :return: the seed of a fit, of which `random_state` may give another each time.
    :raises ValueError: for what cannot work.
    """
    model = check_choice(estimator.model, "model", ("auto", *presets.names()))
    if estimator.num_layers is not None:
        check_positive_integer(estimator.num_layers, "num_layers")
    check_choice(estimator.float, "float", ("float32", "float64"))
    fraction = estimator.validation_fraction
    if check_number(fraction, "validation_fraction", low=0.0) >= 1.0:
        raise ValueError(f"validation_fraction: expected a share in [0, 1), got {fraction!r}.")
    for name in ("time_limit", "jitter"):
        if getattr(estimator, name) is not None:
            check_positive_number(getattr(estimator, name), name)
    for name in ("warm_start", "warp"):
        check_flag(getattr(estimator, name), name)
    check_number(int(v) if isinstance(v := estimator.verbose, bool) else v, "verbose", low=0.0)
    if not isinstance(estimator.checkpoint_dir, (str, PathLike, type(None))):
        raise ValueError(
            f"checkpoint_dir: expected a path or None, got {estimator.checkpoint_dir!r}."
        )
    if not isinstance(estimator.settings, (Mapping, type(None))):
        raise ValueError(f"settings: expected values by name or None, got {estimator.settings!r}.")
    _check_settings(estimator.settings or {}, estimator.steps)
    if model != "auto":
        _tell_unused(model, estimator)
    try:
        return int(check_random_state(estimator.random_state).randint(2**31 - 1))
    except ValueError as error:
        raise ValueError(
            f"random_state: expected an integer in [0, 2^32), a RandomState or None, got"
            f" {estimator.random_state!r}."
        ) from error


def _tell_unused(model: str, estimator: Any) -> None:
    preset = presets.get(model)
    fixed = dict(preset.fixed) | ({"kernel": model} if model == CONSTANT else {})
    if preset.max_layers is not None and (estimator.num_layers or 0) > preset.max_layers:
        fixed["num_layers"] = preset.max_layers
    given = {"num_layers": estimator.num_layers} | given_settings(estimator)
    for name, value in fixed.items():
        if given.get(name) not in (None, value):
            warnings.warn(
                f"{name}: {model!r} has {value!r} always, and does without the {given[name]!r} given.",
                stacklevel=5,
            )


def _check_settings(settings: Mapping[str, Any], steps: Any) -> None:
    """
    Check the names of settings, and steps, also those among them.

    :param settings: the estimator's.
    :param steps: the estimator's, or ``None``.
    :raises ValueError: for what is no setting, or not of the estimator; and for two numbers of steps.
    """
    for number in (steps, settings.get("steps")):
        if number is not None:
            check_positive_integer(number, "steps")
    if steps is not None and settings.get("steps", steps) not in (None, steps):
        raise ValueError(
            f"steps: expected one number, got {steps} and, among the settings, {settings['steps']}."
        )
    own = OWN_SETTINGS & set(settings)
    if own:
        raise ValueError(
            f"settings: expected none that the estimator has itself, got {', '.join(sorted(own))}."
        )
    unknown = set(settings) - set(asdict(Settings()))
    if unknown:
        raise ValueError(
            f"settings: expected names of gpflow_deep.presets.Settings, got {', '.join(sorted(unknown))}."
        )
