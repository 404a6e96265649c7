"""Which families a default tries where rows are too few to hold any out."""

from __future__ import annotations

from collections.abc import Sequence

from gpflow_deep.presets.registry import EXACT

from .averaged import AVERAGED
from .selection import FOLDS, QUICK

__all__ = ["FEWEST_ROWS", "alone", "are_averaged", "rivals"]

FEWEST_ROWS = 200  # to hold any out: of a fourth of them the log density would be noise
_FEWEST_FOR_FOLDS = 30  # to choose by cross-validation in their place
_FEWEST_SECONDS_FOR_FOLDS = 2.0  # some of which each fit takes whatever the rows
_FEWEST_SECONDS = 10.0  # for a deep one among them: to compile it for each part takes about as many


def rivals(
    shallow: Sequence[str], deep: str, num_rows: int, limit: float, *, classes: bool
) -> list[str]:
    """
    The families to choose from by cross-validation; none where rows or seconds are too few.

    :param shallow: families, the preferred one first.
    :param deep: the deep one.
    :param num_rows: rows to train on.
    :param limit: seconds for all.
    :param classes: whether the targets are classes.
    """
    # These leave most of their time to the others, which are tried while there is some.
    names = sorted(shallow, key=lambda name: name not in QUICK)
    is_enough = num_rows >= _FEWEST_FOR_FOLDS and limit >= _FEWEST_SECONDS
    has_time = limit >= _FEWEST_SECONDS_FOR_FOLDS
    if not classes:
        if num_rows < _FEWEST_FOR_FOLDS or not has_time:
            return []
        return [*names, deep] if is_enough else names
    if is_enough:
        return [name for name in names if name not in EXACT]
    # A sparse GP of few rows, and one whose training is cut short, is sure of noise; the exact GP's
    # probabilities are learned from rows left out.
    if FOLDS <= num_rows < FEWEST_ROWS and has_time:
        return [name for name in names if name in (*QUICK, *EXACT)]
    return []


def are_averaged(shallow: Sequence[str], num_rows: int, *, classes: bool) -> bool:
    """
    Whether what rows leave open is averaged over, as there is nothing to choose by; arguments as of
    :func:`rivals`.
    """
    return not classes and num_rows < _FEWEST_FOR_FOLDS and set(AVERAGED) <= set(shallow)


def alone(shallow: Sequence[str], num_rows: int, *, classes: bool) -> str:
    """The family where there is nothing to choose by; arguments as of :func:`rivals`."""
    if classes and num_rows < _FEWEST_FOR_FOLDS:
        return next((name for name in shallow if name in EXACT), shallow[0])
    return shallow[0]
