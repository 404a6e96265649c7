"""Models by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

from .settings import Settings

if TYPE_CHECKING:
    import numpy as np  # which the command line's help has no time for

__all__ = ["CONSTANT", "EXACT", "LINEAR", "Builder", "Preset", "build", "get", "names", "register"]

Builder = Callable[["np.ndarray", "np.ndarray", Settings, int], Any]
"""
(X [N, D], Y [N, P], settings, seed) -> a model with `predict_y_mixture`; X and Y standardised.

>>> build: gd.presets.Builder = gd.presets.get("svgp").build
>>> build(X, Y, gd.presets.Settings(num_layers=1, num_inducing=5), 0).num_latent_gps
1
"""

CONSTANT = "constant"
LINEAR = "linear"
#: The presets that are exact GPs.
EXACT = ("gp", "rough-gp", CONSTANT)
#: Those that travel by learned sites and are trained for their predictive density.
SITES = frozenset({"dspp", "ppgpr"})

#: Modules that register the families of this package when they are imported.
_FAMILIES = (
    "gpflow_deep.presets.amortized",
    "gpflow_deep.presets.bayesian_networks",
    "gpflow_deep.presets.exact",
    "gpflow_deep.presets.fitc_ep",
    "gpflow_deep.presets.global_inducing",
    "gpflow_deep.presets.latent_variable",
    "gpflow_deep.presets.linear",
    "gpflow_deep.presets.papers",
    "gpflow_deep.presets.sampled",
    "gpflow_deep.presets.structured",
)


@dataclass(frozen=True)
class Preset:
    """
    A model by name.

    >>> preset = gd.presets.get("lindinger2020-stripes-and-arrow")
    >>> preset.settings().num_layers  # the paper's
    3

    :param name: what it is called in commands and tables.
    :param builder: makes it from standardised data.
    :param max_layers: more layers than it can have are not asked of it.
    :param defaults: the settings of the paper whose model it is, for one that bears a paper's name.
    :param fixed: settings that the name itself says.
    :param weights: whether its objective is a sum of expected log-likelihoods, in which rows can be weighted.
    """

    name: str
    builder: Builder
    max_layers: int | None = None
    defaults: Settings | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    weights: bool = True

    @property
    def description(self) -> str:
        """What it is, in a sentence: the first paragraph of the builder's docstring."""
        documented: Any = self.builder
        while isinstance(documented, partial) and documented.__doc__ == partial.__doc__:
            documented = documented.func
        paragraph = cleandoc(documented.__doc__ or "").partition("\n\n")[0]
        return " ".join(paragraph.split())

    def settings(self, settings: Settings | None = None) -> Settings:
        """
        Settings as this model can use them, by default its paper's, or `Settings()`.

        :raises TypeError: where they are no `Settings`.
        """
        if not (settings is None or isinstance(settings, Settings)):
            raise TypeError(
                f"settings: expected gpflow_deep.presets.Settings or None, got {settings!r}."
            )
        settings = replace(settings or self.defaults or Settings(), **self.fixed)
        if self.max_layers is None:
            return settings
        return replace(settings, num_layers=min(settings.num_layers, self.max_layers))

    def build(self, X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> Any:
        """What the builder makes, with the components of predictions that the settings say."""
        model = self.builder(X, Y, settings, seed)
        if hasattr(model, "num_prediction_samples"):
            model.num_prediction_samples = settings.test_samples
        return model


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

    >>> @gd.presets.register("example")
    ... def example(X, Y, settings, seed):
    ...     '''An SVGP of GPflow, by name.'''
    ...     likelihood = gpflow.likelihoods.Gaussian(settings.likelihood_variance)
    ...     return gpflow.models.SVGP(gpflow.kernels.Matern52(), likelihood, X[: settings.num_inducing])
    >>> gd.presets.get("example").description
    'An SVGP of GPflow, by name.'

    :raises ValueError: where the name is in use.
    """

    def decorate(build: Builder) -> Builder:
        if name in _MODELS:
            raise ValueError(f"name: a model {name!r} is registered already.")
        _MODELS[name] = Preset(name, build, max_layers, defaults, fixed or {}, weights)
        return build

    return decorate


def names() -> list[str]:
    """
    Names of all registered models.

    >>> {"gp", "svgp", "mean-field", "stripes-and-arrow"} <= set(gd.presets.names())
    True
    """
    for family in _FAMILIES:
        import_module(family)
    return sorted(_MODELS)


def get(name: str) -> Preset:
    """
    A registered model.

    >>> gd.presets.get("svgp").description
    'A sparse variational GP: one layer.'

    :param name: one of `names()`.
    :raises ValueError: for any other name; it lists them, and at its end those near it.
    """
    known = names()
    if name not in known:
        near = get_close_matches(str(name), known, n=5)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise ValueError(f"name: expected one of {', '.join(known)}, got {name!r}{hint}.")
    return _MODELS[name]


def build(
    name: str, X: np.ndarray, Y: np.ndarray, settings: Settings | None = None, seed: int = 0
) -> Any:
    """
    The model of a name, made from data.

    >>> settings = gd.presets.Settings(num_layers=2, hidden_dim=2, num_inducing=5)
    >>> model = gd.presets.build("stripes-and-arrow", X, Y, settings)
    >>> [layer.num_latent_gps for layer in model.layers]
    [2, 1]

    :param name: one of `names()`.
    :param X: standardised inputs [N, D].
    :param Y: standardised targets [N, P], or classes.
    :param settings: size and initial values, as many layers as the model can have; see `Preset.settings`.
    :param seed: of everything random.
    :raises ValueError: for an unknown name, and for data of another shape or kind, or with NaN or infinity.
    """
    import numpy as np

    from ..validation import refuse_non_finite

    preset = get(name)
    X, Y = np.asarray(X), np.asarray(Y)
    for array, what in (
        (X, "X: expected standardised inputs [N, D]"),
        (Y, "Y: expected targets [N, P]"),
    ):
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            raise ValueError(f"{what}, got {array.dtype} of shape {array.shape}.")
    if len(X) != len(Y):
        raise ValueError(f"Y: expected {len(X)} rows, as X has, got {len(Y)}.")
    refuse_non_finite(X, "X")
    refuse_non_finite(Y, "Y")
    # Whole numbers, such as classes, are no parameters' dtype.
    dtype = X.dtype if X.dtype.kind == "f" else np.float64
    X, Y = (array if array.dtype.kind == "f" else array.astype(dtype) for array in (X, Y))
    return preset.build(X, Y, preset.settings(settings), seed)
