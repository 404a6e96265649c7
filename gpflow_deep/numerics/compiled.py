"""Functions compiled once a run, whose graphs end with them."""

from __future__ import annotations

__all__ = ["compiled", "custom_gradients", "forget_gradients"]

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow_probability import bijectors


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """
    A `tf.function` whose first call TensorFlow knows for one, and whose graphs end with it.

    It counts tracings by a function's code, which all runs of a process share, and from the fifth run on
    would warn of retracing. A partial has no code. AutoGraph is kept out: there is no Python control flow to
    convert.

    Two global tables would hold its graphs for the life of the process, some ten MB a fit: TensorFlow's
    registry of custom gradients, which each use of one in a graph adds to, and TensorFlow Probability's
    cache of what bijectors gave, in which a graph's tensors hold each other. The second is of no use once a
    graph is traced, the first until the function is gone.

    :param options: of `tf.function`.
    """
    gradients: set[str] = set()

    def traced(*args: Any, **kwargs: Any) -> Any:
        # As told by tf.config.run_functions_eagerly: there is no graph, and nothing to forget.
        if tf.executing_eagerly():
            return function(*args, **kwargs)
        before = set(custom_gradients())
        try:
            with _without_collections():
                return function(*args, **kwargs)
        finally:
            # Inside another function's graph they are that function's: it may outlive this one.
            outer = getattr(tf.compat.v1.get_default_graph(), "outer_graph", None)
            if outer is None or not outer.building_function:
                gradients.update(custom_gradients().keys() - before)
            _forget_symbolic_tensors()

    result = tf.function(partial(traced), autograph=False, **options)
    weakref.finalize(result, forget_gradients, gradients).atexit = False
    return result


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """
    No garbage is collected meanwhile. What a tracing makes lives on, but is so much that Python would search
    all objects of TensorFlow too, for a sixth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def custom_gradients() -> dict[str, Any]:
    """TensorFlow's registry by name; empty where another version keeps it elsewhere."""
    return getattr(getattr(ops, "gradient_registry", None), "_registry", {})


def forget_gradients(names: set[str]) -> None:
    """Take them out of the registry, those that are still there."""
    for name in names:
        custom_gradients().pop(name, None)


def _forget_symbolic_tensors() -> None:
    """Take the tensors of graphs out of the bijectors' cache; what was computed eagerly stays."""
    cache = getattr(getattr(bijectors.Bijector, "_cache", None), "storage", {})
    for key in list(cache):
        if any(tf.is_symbolic_tensor(tensor) for tensor in tf.nest.flatten(key())):
            key.cancel()
            cache.pop(key, None)
