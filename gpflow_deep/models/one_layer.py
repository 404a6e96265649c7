"""The names that code written for GPflow's SVGP uses, for models of one layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ..layers import Layer

__all__ = ["OneLayerNames"]

_PARTS = ("kernel", "inducing_variable", "mean_function", "q_mu", "q_sqrt")


def _of_layer(name: str) -> Any:
    def get(self: OneLayerNames) -> Any:
        return getattr(self._only_layer(name), name)

    def put(self: OneLayerNames, value: Any) -> None:
        self._only_layer(name).replace(name, value)
        self._untrack(name)

    return property(get, put, doc=f"The layer's ``{name}``, of models of one layer.")


def _of_posterior(name: str) -> Any:
    def find(self: OneLayerNames) -> tuple[Any, Any]:
        """The posterior, and what it has by this name: of some families a list, layer by layer."""
        self._only_layer(name)
        posterior = getattr(self, "inducing_posterior", None)
        if isinstance(posterior, list):
            (posterior,) = posterior
        values = getattr(posterior, name, None)
        if values is None:
            raise AttributeError(f"The posterior of {type(self).__name__} has no {name}.")
        return posterior, values

    def get(self: OneLayerNames) -> Any:
        _, values = find(self)
        return values[0] if isinstance(values, list) else values

    def put(self: OneLayerNames, value: Any) -> None:
        posterior, values = find(self)
        before = tuple((values[0] if isinstance(values, list) else values).shape)
        shape = tuple(tf.convert_to_tensor(value).shape)
        if shape != before:
            raise ValueError(f"{name}: expected shape {before}, got {shape}.")
        # TensorFlow makes no checkpoint of a list whose elements were replaced.
        setattr(posterior, name, [value] if isinstance(values, list) else value)
        self._untrack(name)

    return property(get, put, doc=f"The posterior's ``{name}``, of models of one layer.")


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
        own = object.__getattribute__(self, "__dict__")
        for name in _PARTS:
            part = getattr(self, name, None)
            if part is not None:
                own[name] = part
            else:
                own.pop(name, None)

    def _untrack(self, name: str) -> None:
        # TensorFlow's own: a checkpoint has the part where it belongs, in the layer or the posterior.
        self._delete_tracking(name)  # type: ignore[attr-defined]

    if not TYPE_CHECKING:  # which would take every attribute for known

        def __getattribute__(self, name: str) -> Any:
            # Layers and posteriors do not know the models that they are parts of, and may have new parts at
            # any time. TensorFlow and GPflow, of the model or of what contains it, all look here for them.
            found = super().__getattribute__(name)
            if name == "__dict__" and not found.keys().isdisjoint(_PARTS):
                self._name_parts()
            return found
