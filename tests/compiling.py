"""Fixtures for tests that fit much and test something else: compilations would be most of their time."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from gpflow_deep import training
from gpflow_deep.estimators import ascent

_FEW = 10


@pytest.fixture(autouse=True, scope="module")
def few_steps_are_not_compiled() -> Iterator[None]:
    """To trace a model takes as long as tens of its steps."""
    real = training.fit

    def fit(*arguments: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*run_functions_eagerly", UserWarning)
            before = tf.config.functions_run_eagerly()
            tf.config.run_functions_eagerly(before or options.get("steps", _FEW + 1) <= _FEW)
            try:
                return real(*arguments, **options)
            finally:
                tf.config.run_functions_eagerly(before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "fit", fit)
        yield


@pytest.fixture
def evidence_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has fitted nothing."""
    monkeypatch.setattr(ascent._compiled, "first", OrderedDict())
