"""What may come of a case, and how it is told."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

from check_shapes.exceptions import CheckShapesError

from gpflow_deep.training import TrainingError

FINE, IN_WORDS, RAW, SILENT = "fine", "in words", "raw", "silent"
OUTCOMES = (FINE, IN_WORDS, RAW, SILENT)

Case = dict[str, Any]
Outcome = tuple[str, str]
"""One of `OUTCOMES`, and what was said."""

_EXPECTED = (
    ValueError,
    TypeError,
    MemoryError,
    TrainingError,
    NotImplementedError,
    CheckShapesError,
)


def judge(function: Callable[[Case], Outcome], case: Case) -> Outcome:
    """The outcome of a case, errors included."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(case)
    except Exception as error:  # raw ones are what the campaign looks for
        said = f"{type(error).__name__}: {error}"
        # The argument, and what was expected of it; or the step, and why it failed.
        name = case.get("argument", "Training failed at step [0-9]+")
        named = re.search(rf"\b{name}\b.*: |expected .*\b{name}\b|Argument: {name}\b", said)
        return IN_WORDS if isinstance(error, _EXPECTED) and named else RAW, said[:300]
