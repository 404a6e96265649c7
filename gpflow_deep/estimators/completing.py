"""Rows that were held out, given to what was fitted without them."""

from __future__ import annotations

import copy
from dataclasses import replace

from gpflow_deep.presets import Settings
from gpflow_deep.presets.exact import ExactGP
from gpflow_deep.presets.registry import CONSTANT, LINEAR

from .calibration import Errors, calibrate, left_out
from .constant import fit_constant
from .error_forest import ErrorForest
from .evidence import condition, named_objectives
from .few_rows import each_left_out
from .fitted import FittedModel
from .labels import grow_label_forest
from .linear import fit_linear
from .logistic import fit_logistic
from .rows import Rows

__all__ = ["complete", "given_all"]

_AGAIN = 0.1  # of the time, for a linear member


def given_all(
    member: FittedModel,
    rows: Rows,
    trained_on: int,
    seed: int,
    time_limit: float | None,
    *,
    classes: bool,
    forest: bool,
) -> FittedModel:
    """
    An exact GP takes in held-out rows without more training, a linear model in no time.

    :param member: one of these, or a constant.
    :param rows: all, standardised.
    :param trained_on: how many it was fitted to, or drawn from.
    :param seed: of the draws of rows, and of forests.
    :param time_limit: of the whole fit.
    :param classes: whether targets are classes.
    :param forest: whether errors of a constant may be described by the inputs.
    """
    known = int(member.report["rows"])
    if member.name == LINEAR:
        limit = None if time_limit is None else _AGAIN * time_limit
        if not classes:
            linear = fit_linear(rows, member.settings, seed, limit)
            return replace(member, model=linear[0], errors=linear[1])
        model = copy.deepcopy(member.model)
        fit_logistic(model, rows, member.num_outputs, seed, limit)
        return replace(member, model=model)
    # A forest of these may take as long as the whole fit before.
    seconds = None if time_limit is None else member.report["seconds"]
    if member.name == CONSTANT:
        most = known if known < trained_on else None
        constant = fit_constant(rows, member.settings, seed, most, seconds, forest)
        return replace(member, model=constant[0], errors=constant[1])
    if known < trained_on:  # and other rows would be no more
        return member
    model, errors = complete(
        member.name, member.model, member.errors, rows, member.settings, seed, seconds
    )
    labels = member.labels
    if labels is not None and labels.forest is not None:
        grown = grow_label_forest(left_out(model), labels.link, seed, seconds)
        labels = labels._replace(forest=grown)
    return replace(member, model=model, errors=errors, labels=labels)


def complete(
    name: str,
    model: ExactGP,
    errors: Errors | None,
    rows: Rows,
    settings: Settings,
    seed: int,
    seconds: float | None = None,
) -> tuple[ExactGP, Errors | None]:
    """
    The same GP given all rows, some of which it was not fitted to. A forest of its errors is grown again: it
    knows where targets lie from the predictions of the GP that it was grown beside, and these change.

    :param name: of the preset.
    :param model: fitted to some of the rows.
    :param errors: of its predictions.
    :param rows: standardised.
    :param settings: that it was built with.
    :param seed: of the draw of rows, and of the forest.
    :param seconds: that its fit was given.
    """
    whole = condition(name, model, rows, settings, seed)
    if isinstance(errors, ErrorForest):
        errors = calibrate(
            whole, each_left_out(whole, seed, seconds, named_objectives(name, settings)), seed=seed
        )
    return whole, errors
