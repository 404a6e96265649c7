"""What presets make of settings: each changes what is built, but where the model has no use for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gpflow
import numpy as np
import pytest

from gpflow_deep import presets
from gpflow_deep.presets import Settings
from gpflow_deep.presets.registry import EXACT, LINEAR

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 2))
Y = np.sin(X[:, :1])
SMALL = Settings(
    hidden_dim=2,
    num_inducing=4,
    num_samples=2,
    likelihood_variance=0.2,
    test_samples=9,
    steps=100,
)

#: Other values than these of what a builder could forget.
_CHANGES: dict[str, Any] = {
    "num_samples": 3,
    "likelihood_variance": 0.4,
    "hidden_scale": 0.5,
    "kernel": "matern32",
    "inducing_init": "greedy",
    "noise_floor": 0.15,
    "compute_dtype": "float32",
}
_STRUCTURED = {"hidden_scale", "compute_dtype"}
_ONE_LAYER = {"hidden_scale", "num_samples"}
#: By a preset of each builder, what it has no use for.
_NO_USE: dict[str, set[str]] = {
    "svgp": {"hidden_scale"},
    "mean-field": set(),
    "latent-variable": set(),
    "dspp": {"hidden_scale"},
    "solve-gp": _ONE_LAYER,
    "sghmc": _STRUCTURED,
    "global-inducing": _STRUCTURED,
    "local-inducing": _STRUCTURED,
    # Every GP has inducing inputs of its own, ...
    "fitc-ep-2": {*_STRUCTURED, "num_samples", "inducing_init"},
    # ... and every point.
    "ar2": {*_STRUCTURED, "inducing_init"},
    "idsgp": {*_STRUCTURED, *_ONE_LAYER, "inducing_init"},
    "bnn-global-inducing-neal": {*_STRUCTURED, "inducing_init"},
    "lindinger2020-mean-field": set(),
    "ober2021-global-inducing": _STRUCTURED,
    "meng2024-mean-field": set(),
}


def _facts(model: Any) -> dict[str, Any]:
    """All that these settings can change."""
    facts: dict[str, Any] = {
        path: np.asarray(parameter).tolist()
        for path, parameter in gpflow.utilities.parameter_dict(model).items()
    }
    facts["kernels"] = [type(getattr(layer, "kernel", None)) for layer in model.layers]
    for name in ("num_samples", "num_importance_samples", "compute_dtype"):
        facts[name] = getattr(model, name, None)
    return facts


@pytest.mark.parametrize("name", sorted({*presets.names()} - {*EXACT, LINEAR}))
def test_components_of_predictions(name: str) -> None:
    assert presets.build(name, X, Y, SMALL).num_prediction_samples == 9


@pytest.mark.parametrize("name", _NO_USE)
def test_settings_change_what_is_built(name: str) -> None:
    usual = _facts(presets.build(name, X, Y, SMALL))
    no_use = set()
    for setting, value in _CHANGES.items():
        settings = replace(SMALL, **{setting: value})
        if setting == "kernel" and name.startswith("bnn"):
            with pytest.raises(ValueError, match="kernel: expected none"):
                presets.build(name, X, Y, settings)
        elif _facts(presets.build(name, X, Y, settings)) == usual:
            no_use.add(setting)
    assert no_use == _NO_USE[name]


@pytest.mark.parametrize("name", ["global-inducing", "ober2021-global-inducing"])
def test_global_inducing_inputs_chosen_greedily_have_their_targets(name: str) -> None:
    repeated = np.concatenate([X, X])
    targets = np.sin(repeated[:, :1])
    greedy = replace(SMALL, inducing_init="greedy")
    model = presets.build(name, repeated, targets, greedy)
    Z = model.layers[0].inducing_variable.Z.numpy()
    expected = presets.build("svgp", repeated, targets, greedy).layers[0].inducing_variable.Z
    np.testing.assert_array_equal(Z, expected)
    pseudo_outputs = model.inducing_posteriors[-1].pseudo_outputs
    np.testing.assert_allclose(pseudo_outputs, np.sin(Z[:, :1]))
