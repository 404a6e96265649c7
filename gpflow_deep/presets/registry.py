"""Models by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .settings import Settings

if TYPE_CHECKING:
    import numpy as np  # which the command line's help has no time for

__all__ = ["Builder", "Preset", "build", "get", "names", "register"]

#: (X [N, D], Y [N, P], settings, seed) -> a model with `predict_y_mixture`; X and Y standardised.
Builder = Callable[["np.ndarray", "np.ndarray", Settings, int], Any]

#: Modules that register the families of this package when they are imported.
_FAMILIES = (
    "gpflow_deep.presets.amortized",
    "gpflow_deep.presets.bayesian_networks",
    "gpflow_deep.presets.exact",
    "gpflow_deep.presets.fitc_ep",
    "gpflow_deep.presets.global_inducing",
    "gpflow_deep.presets.papers",
    "gpflow_deep.presets.sampled",
    "gpflow_deep.presets.structured",
)


@dataclass(frozen=True)
class Preset:
    """
    A model by name.

    :param name: what it is called in commands and tables.
    :param build: makes it from standardised data.
    :param max_layers: more layers than it can have are not asked of it.
    :param defaults: the settings of the paper whose model it is, for one that bears a paper's name.
    :param fixed: settings that the name itself says.
    :param weights: whether its objective is a sum of expected log-likelihoods, in which rows can be weighted.
    """

    name: str
    build: Builder
    max_layers: int | None = None
    defaults: Settings | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    weights: bool = True

    @property
    def description(self) -> str:
        """What it is, in a sentence."""
        return (self.build.__doc__ or "").strip().partition("\n")[0]

    def settings(self, settings: Settings | None = None) -> Settings:
        """Settings as this model can use them, by default its paper's, or `Settings()`."""
        settings = replace(settings or self.defaults or Settings(), **self.fixed)
        if self.max_layers is None:
            return settings
        return replace(settings, num_layers=min(settings.num_layers, self.max_layers))


_MODELS: dict[str, Preset] = {}


def register(
    name: str,
    *,
    max_layers: int | None = None,
    defaults: Settings | None = None,
    fixed: Mapping[str, Any] | None = None,
    weights: bool = True,
) -> Callable[[Builder], Builder]:
    """
    Decorator that makes a builder known by a name; the parameters are those of `Preset`.

    :raises ValueError: where the name is in use.
    """

    def decorate(build: Builder) -> Builder:
        if name in _MODELS:
            raise ValueError(f"name: a model {name!r} is registered already.")
        _MODELS[name] = Preset(name, build, max_layers, defaults, fixed or {}, weights)
        return build

    return decorate


def names() -> list[str]:
    """Names of all registered models."""
    for family in _FAMILIES:
        import_module(family)
    return sorted(_MODELS)


def get(name: str) -> Preset:
    """
    A registered model.

    :param name: one of `names()`.
    :raises ValueError: for any other name; it lists them.
    """
    known = names()
    if name not in known:
        raise ValueError(f"name: expected one of {', '.join(known)}, got {name!r}.")
    return _MODELS[name]


def build(
    name: str, X: np.ndarray, Y: np.ndarray, settings: Settings | None = None, seed: int = 0
) -> Any:
    """
    The model of a name, made from data.

    :param name: one of `names()`.
    :param X: standardised inputs [N, D].
    :param Y: standardised targets [N, P], or classes.
    :param settings: size and initial values, as many layers as the model can have; see `Preset.settings`.
    :param seed: of everything random.
    :raises ValueError: for an unknown name.
    """
    preset = get(name)
    return preset.build(X, Y, preset.settings(settings), seed)
