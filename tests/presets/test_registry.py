from __future__ import annotations

import pytest

from gpflow_deep.presets import Settings, registry


def test_registered_models_are_found(toy_models: None) -> None:
    assert registry.names() == ["toy-a", "toy-b", "toy-flat"]
    assert registry.get("toy-a").name == "toy-a"


def test_an_unknown_model_lists_those_registered(toy_models: None) -> None:
    with pytest.raises(ValueError, match="toy-a, toy-b, toy-flat, got 'toy-c'"):
        registry.get("toy-c")


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
    ],
)
def test_settings_that_no_run_could_use(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected"):
        Settings(**{name: value})


def test_zero_switches_off() -> None:
    settings = Settings(natural_gradient=0.0, validation_fraction=0.0)
    assert settings.validation_fraction == 0.0
