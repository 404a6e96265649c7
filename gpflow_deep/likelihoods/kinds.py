"""What can be known of a likelihood by its class and by what it is made of."""

from __future__ import annotations

from typing import Any

from gpflow.functions import Function
from gpflow.likelihoods import (
    HeteroskedasticTFPConditional,
    Likelihood,
    MonteCarloLikelihood,
    MultiClass,
    Ordinal,
    SwitchedLikelihood,
)

__all__ = ["has_functions", "inherits", "is_own", "is_switched"]

#: GPflow gives these no functions of the inputs, and some of their methods take matrices only.
_OF_MATRICES = HeteroskedasticTFPConditional, MonteCarloLikelihood, MultiClass, Ordinal

_NOT_YOURS = "gpflow", "gpflow_deep", "tensorflow", "abc", "builtins"


def inherits(likelihood: Likelihood, base: Any, *methods: str) -> bool:
    """Whether a likelihood's methods are those of a class of GPflow's, none overridden."""
    return all(getattr(type(likelihood), name) is getattr(base, name) for name in methods)


def is_own(likelihood: Likelihood, *methods: str) -> bool:
    """Whether one of some methods is defined by a class that is neither GPflow's nor this package's."""
    names = {*methods, *(f"_{name}" for name in methods)}
    return any(names & vars(base).keys() for base in type(likelihood).__mro__ if _is_yours(base))


def _is_yours(base: type) -> bool:
    return base.__module__.split(".")[0] not in _NOT_YOURS


def is_switched(likelihood: Likelihood) -> bool:
    """Whether the last column of the observations says which of several likelihoods they are of."""
    return isinstance(likelihood, SwitchedLikelihood) and inherits(
        likelihood,
        SwitchedLikelihood,
        "_variational_expectations",
        "_predict_log_density",
        "_predict_mean_and_var",
    )


def has_functions(likelihood: Likelihood) -> bool:
    """Whether a likelihood is made of functions of the inputs, such as one for its noise's variance."""
    if isinstance(likelihood, _OF_MATRICES):
        return False
    if isinstance(likelihood, SwitchedLikelihood):
        return is_switched(likelihood) and any(map(has_functions, likelihood.likelihoods))
    return any(isinstance(part, Function) for part in likelihood.submodules)
