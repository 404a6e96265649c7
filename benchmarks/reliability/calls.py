"""Bad calls: every argument of every public constructor and function, at values it cannot have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.utilities import read_values

from .outcomes import FINE, SILENT, Case, Outcome
from .public import ACCEPTED, BAD, CALLS, Argument


def calls() -> Iterator[Case]:
    """Every argument of every callable at every bad value: a list with an end."""
    for name, (_, arguments) in CALLS.items():
        for argument in arguments:
            for bad in BAD:
                yield {"call": name, "argument": argument, "bad": bad}


def call(case: Case) -> Outcome:
    function, arguments = CALLS[case["call"]]
    argument = arguments[case["argument"]]
    given = {name: one.make() for name, one in arguments.items() if one.make is not None}
    result = function(**{**given, case["argument"]: BAD[case["bad"]]})
    if not may_be(case["bad"], case["argument"], argument, function):
        return SILENT, f"accepted {case['bad']}"
    if argument.kind != "new inputs" and not _is_finite(result):
        return SILENT, "accepted, with a result that is not finite"
    return FINE, "accepted"


def may_be(bad: str, name: str, argument: Argument, function: Callable[..., Any]) -> bool:
    """Whether the argument can have that value; what None means is said by the signature."""
    if bad == "none":
        parameter = inspect.signature(function).parameters.get(name)
        return parameter is None or parameter.default is None or "None" in str(parameter.annotation)
    return bad in ACCEPTED[argument.kind]


def _is_finite(result: Any) -> bool:
    if isinstance(result, tf.Module):
        result = list(read_values(result).values())
    for part in tf.nest.flatten(result):
        try:
            array = np.asarray(part, dtype=float)
        except (TypeError, ValueError):
            continue  # not numbers
        if not np.isfinite(array).all():
            return False
    return True
