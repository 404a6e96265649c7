"""scikit-learn's own checks, and the tools that its users have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
from check_shapes import disable_check_shapes
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpflow_deep.estimators import DeepGPClassifier, DeepGPRegressor, evidence, few_rows, starting


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hundred small fits: not to trace them saves most of their time; one kernel, one start, two parts."""
    monkeypatch.setattr(evidence, "_KERNELS", ("rbf",))
    monkeypatch.setattr(evidence, "_OTHER_STARTS", ())
    monkeypatch.setattr(evidence, "_TRIAL_ITERATIONS", 0)
    monkeypatch.setattr(evidence, "_ITERATIONS", 2)
    monkeypatch.setattr(few_rows, "_ITERATIONS", 2)
    monkeypatch.setattr(few_rows, "_PARTS", 2)
    monkeypatch.setattr(starting, "_SCALES", (1.0,))
    monkeypatch.setattr(evidence, "_ROWS_AN_INPUT", 0)
    tf.config.run_functions_eagerly(True)
    with disable_check_shapes():
        yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.filterwarnings("ignore")  # of the checks' own data
@parametrize_with_checks(
    [
        DeepGPRegressor("gp"),
        # None held out: to look at them after each step would double its time.
        DeepGPClassifier(
            "svgp",
            steps=3,
            num_inducing=6,
            validation_fraction=0.0,
            settings={"learning_rate": 0.5},
        ),
    ]
)
def test_scikit_learns_checks(estimator: Any, check: Callable[[Any], None], quick: None) -> None:
    check(estimator)
