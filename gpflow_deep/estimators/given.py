"""Settings that the user of an estimator gives, in place of those that follow from family and data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gpflow_deep.presets import Settings
from gpflow_deep.validation import check_positive_integer

__all__ = ["OWN_SETTINGS", "check_settings", "given_settings", "given_steps"]

#: Those that are parameters of the estimator, or follow from its data, alone.
OWN_SETTINGS = frozenset({"likelihood", "num_classes", "validation_fraction"})


def given_settings(estimator: Any) -> dict[str, Any]:
    """By name; not the steps, of which a schedule follows."""
    given = {"num_inducing": estimator.num_inducing, "kernel": estimator.kernel}
    given |= dict(estimator.settings or {})
    return {key: value for key, value in given.items() if value is not None and key != "steps"}


def given_steps(estimator: Any) -> int | None:
    """The number of steps, which may be one of the settings."""
    steps: int | None = estimator.steps or (estimator.settings or {}).get("steps")
    return steps


def check_settings(settings: Mapping[str, Any], steps: Any) -> None:
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
