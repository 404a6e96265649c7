"""The families of models, one by one, for the suites that all of them must pass."""

from __future__ import annotations

import pytest

from gpflow_deep.models import DeepGPModel
from tests.models.contract import FAMILIES, make_model


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def model(family: str) -> DeepGPModel:
    return make_model(family)
