from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from gpflow_deep.presets import Settings, registry


def test_registered_models_are_found(toy_models: None) -> None:
    assert registry.names() == ["toy-a", "toy-b", "toy-flat"]
    assert registry.get("toy-a").name == "toy-a"


def test_an_unknown_model_lists_those_registered(toy_models: None) -> None:
    with pytest.raises(ValueError, match=r"toy-a, toy-b, toy-flat, got 'none'\.$"):
        registry.get("none")
    with pytest.raises(ValueError, match=r"toy-flat, got 'toy_flat'; near it: toy-flat, toy-a\.$"):
        registry.get("toy_flat")


def test_settings_are_settings(toy_models: None) -> None:
    with pytest.raises(TypeError, match=r"settings: expected .*Settings or None, got {'num_layers"):
        registry.get("toy-a").settings({"num_layers": 2})


def test_a_name_is_given_once(toy_models: None) -> None:
    with pytest.raises(ValueError, match="'toy-a' is registered already"):
        registry.register("toy-a")(registry.get("toy-b").build)


def test_a_description_is_one_whole_paragraph(toy_models: None) -> None:
    def build(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> None:
        """
        A model of
        two lines.

        More of it.
        """

    registry.register("toy-lines")(build)
    registry.register("toy-partial")(partial(build))
    for name in ("toy-lines", "toy-partial"):
        assert registry.get(name).description == "A model of two lines."


@pytest.mark.parametrize(
    "X, Y, message",
    [
        (np.zeros(3), np.zeros([3, 1]), r"X: expected .* \[N, D\], got float64 of shape \(3,\)"),
        (np.zeros([3, 1]), np.zeros(3), r"Y: expected targets \[N, P\], got float64 of shape"),
        (np.zeros([3, 1]), np.zeros([2, 1]), "Y: expected 3 rows, as X has, got 2"),
        ([["a"]], [[1.0]], "X: expected .*, got <U1 of shape"),
    ],
)
def test_data_that_no_model_is_made_of(
    X: np.ndarray, Y: np.ndarray, message: str, toy_models: None
) -> None:
    with pytest.raises(ValueError, match=message):
        registry.build("toy-a", X, Y)


def test_models_are_made_of_lists_and_whole_numbers(toy_models: None) -> None:
    model = registry.build("toy-a", [[1, 2], [3, 4]], [[0], [1]], Settings(num_inducing=2))
    assert np.isfinite(model.elbo((np.ones([1, 2]), np.ones([1, 1]))))


def test_depth_is_limited_to_what_a_model_can_have(toy_models: None) -> None:
    settings = Settings(num_layers=3)
    assert registry.get("toy-flat").settings(settings).num_layers == 1
    assert registry.get("toy-a").settings(settings) == settings


@pytest.mark.parametrize(
    "name, value",
    [
        ("steps", 0),
        ("num_layers", -1),
        ("learning_rate", 0.0),
        ("natural_gradient", -0.1),
        ("validation_fraction", 1.0),
        ("likelihood_variance", float("nan")),
        ("likelihood_variance", float("inf")),
        ("steps", 1.5),
        ("steps", True),
        ("num_samples", "5"),
        ("learning_rate", "fast"),
        ("decay_rate", 1.1),
        ("natural_gradient", 1.5),
    ],
)
def test_settings_that_no_run_could_use(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected"):
        Settings(**{name: value})


def test_zero_switches_off() -> None:
    settings = Settings(natural_gradient=0.0, validation_fraction=0.0)
    assert settings.validation_fraction == 0.0


def test_numbers_of_numpy_are_those_of_python() -> None:
    settings = Settings(steps=np.int64(7), learning_rate=np.float32(0.5))
    assert settings == Settings(steps=7, learning_rate=0.5)
    json.dumps(settings.identity())
