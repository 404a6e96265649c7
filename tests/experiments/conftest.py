from __future__ import annotations

import pytest

from gpflow_deep.experiments import registry

from .toys import build_svgp


@pytest.fixture
def toy_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models `toy-a`, `toy-b` of any depth and `toy-flat` of one layer, for one test."""
    monkeypatch.setattr(registry, "_FAMILIES", ())
    monkeypatch.setattr(registry, "_MODELS", {})
    registry.register_model("toy-a")(build_svgp)
    registry.register_model("toy-b")(build_svgp)
    registry.register_model("toy-flat", max_layers=1)(build_svgp)
