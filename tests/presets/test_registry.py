from __future__ import annotations

import json

import numpy as np
import pytest

from gpflow_deep.presets import Settings, registry


def test_registered_models_are_found(toy_models: None) -> None:
    assert registry.names() == ["toy-a", "toy-b", "toy-flat"]
    assert registry.get("toy-a").name == "toy-a"


def test_an_unknown_model_lists_those_registered(toy_models: None) -> None:
    with pytest.raises(ValueError, match="toy-a, toy-b, toy-flat, got 'toy-c'"):
        registry.get("toy-c")


def test_settings_are_settings(toy_models: None) -> None:
    with pytest.raises(TypeError, match=r"settings: expected .*Settings or None, got {'num_layers"):
        registry.get("toy-a").settings({"num_layers": 2})


def test_a_name_is_given_once(toy_models: None) -> None:
    with pytest.raises(ValueError, match="'toy-a' is registered already"):
        registry.register("toy-a")(registry.get("toy-b").build)


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
