"""The names that code written for GPflow's SVGP uses, for models of one layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..layers import Layer

__all__ = ["OneLayerNames"]


def _of_layer(name: str) -> Any:
    def get(self: OneLayerNames) -> Any:
        return getattr(self._only_layer(name), name)

    return property(get, doc=f"The layer's ``{name}``, of models of one layer.")


def _of_posterior(name: str) -> Any:
    def get(self: OneLayerNames) -> Any:
        self._only_layer(name)
        values = getattr(getattr(self, "inducing_posterior", None), name, None)
        if values is None:
            raise AttributeError(f"The posterior of {type(self).__name__} has no {name}.")
        return values[0] if isinstance(values, (list, tuple)) else values

    return property(get, doc=f"The posterior's ``{name}``, of models of one layer.")


class OneLayerNames:
    """The parts of a model's only layer, and of its posterior, by the names that SVGP has for them."""

    layers: Sequence[Any]

    kernel = _of_layer("kernel")
    inducing_variable = _of_layer("inducing_variable")
    mean_function = _of_layer("mean_function")
    whiten = _of_layer("whiten")
    q_mu = _of_posterior("q_mu")
    q_sqrt = _of_posterior("q_sqrt")

    def _only_layer(self, name: str) -> Layer:
        if len(self.layers) != 1:
            raise AttributeError(
                f"{name}: models of one layer have it, this one has {len(self.layers)}; see its layers and"
                " its inducing_posterior."
            )
        layer: Layer = self.layers[0]
        return layer

    def _name_parts(self) -> None:
        """
        Let GPflow's utilities find the parts by these names, too: they look at a module's own attributes.

        A property comes before an entry of the instance's dictionary, so that the two cannot disagree.
        """
        if len(self.layers) != 1:
            return
        for name in ("kernel", "inducing_variable", "mean_function", "q_mu", "q_sqrt"):
            part = getattr(self, name, None)
            if part is not None:
                self.__dict__[name] = part
