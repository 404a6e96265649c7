"""What every test shares: shape checks everywhere, the same draws in any order, one thread."""

from __future__ import annotations

import functools
import gc
import os
import sys
import typing
import weakref

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Workers share the cores: more threads than cores make every test slower.
for _variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

from collections.abc import Iterator  # noqa: E402
from typing import Any  # noqa: E402

import gpflow  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from check_shapes import ShapeCheckingState, set_enable_check_shapes  # noqa: E402
from hypothesis import settings  # noqa: E402
from tensorflow.python.eager import context  # noqa: E402
from tensorflow.python.framework import random_seed  # noqa: E402
from tensorflow_probability.python.internal.cache_util import BijectorCache  # noqa: E402

from gpflow_deep.numerics.compiled import custom_gradients, forget_gradients  # noqa: E402
from gpflow_deep.presets import registry  # noqa: E402

from .toys import build_svgp  # noqa: E402

# The default checks shapes in eager mode only; compiled functions are what users run.
set_enable_check_shapes(ShapeCheckingState.ENABLED)

# Compilation makes first examples slow, and a failure must be the same on every machine.
settings.register_profile("gpflow_deep", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("gpflow_deep")


def pytest_collection_finish() -> None:
    """
    What is imported stays: traced again and again, it is a twentieth of the time that tests take. The rest is
    collected less often: graphs are many objects, few of them garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    _registered.update(custom_gradients())


_registered: set[str] = set()  # by what is imported


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """
    Graphs end with their tests, those of a few dozen models at a time: TensorFlow's registry of custom
    gradients would hold them for the life of the process, some GB in all.
    """
    yield
    gained = custom_gradients().keys() - _registered
    is_last = nextitem is None or nextitem.path != item.path
    if is_last or len(gained) > 100:
        forget_gradients(gained)
        gc.collect()
    if is_last:
        gc.freeze()


# Before 3.12, Python collects a protocol's members again in every `isinstance`. TensorFlow asks so often that
# this is a twentieth of the time that tests take.
if sys.version_info < (3, 12):
    _collect_members = typing._get_protocol_attrs
    typing._get_protocol_attrs = functools.cache(_collect_members)

# Bijectors remember what they computed, which is a seventh of the time that tests take: parameters are read
# that often, and what is remembered saves one operation. Tests of it have it, as has what runs elsewhere.
_look_up = BijectorCache._lookup


def _compute(
    self: BijectorCache, argument: Any, forward_name: str, inverse_name: str, **kwargs: Any
) -> Any:
    return self._invoke(argument, forward_name, kwargs, {})


BijectorCache._lookup = _compute


@pytest.fixture
def bijectors_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users."""
    monkeypatch.setattr(BijectorCache, "_lookup", _look_up)


_SEED = 20201
_get_seed = random_seed.get_seed
_began = False
_functions_that_draw: weakref.WeakSet[tf.Graph] = weakref.WeakSet()


def _note_draws(op_seed: int | None) -> tuple[int | None, int | None]:
    global _began
    _began = True
    if not tf.executing_eagerly():
        _functions_that_draw.add(tf.compat.v1.get_default_graph())
    return _get_seed(op_seed)


random_seed.get_seed = _note_draws


def start_anew() -> None:
    """
    Set the seeds. To set TensorFlow's is to forget every compiled kernel, which is a seventh of the time that
    tests take: it is set where something was drawn, or functions go on drawing.
    """
    global _began
    np.random.seed(_SEED)
    if _began or _functions_that_draw or context.global_seed() != _SEED:
        tf.random.set_seed(_SEED)
        _began = False


@pytest.fixture(autouse=True)
def seeds() -> None:
    """Start every test from the same draws."""
    start_anew()


@pytest.fixture(autouse=True)
def gpflow_settings() -> Iterator[None]:
    """Undo what a test changes in GPflow's settings: default float, jitter and others."""
    with gpflow.config.as_context():
        yield


@pytest.fixture(autouse=True)
def figures_closed() -> Iterator[None]:
    """Close the figures that a test leaves open."""
    yield
    from matplotlib import pyplot as plt

    plt.close("all")


@pytest.fixture
def toy_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models `toy-a`, `toy-b` of any depth and `toy-flat` of one layer, for one test."""
    monkeypatch.setattr(registry, "_FAMILIES", ())
    monkeypatch.setattr(registry, "_MODELS", {})
    registry.register("toy-a")(build_svgp)
    registry.register("toy-b")(build_svgp)
    registry.register("toy-flat", max_layers=1)(build_svgp)
