"""The modules of the studies are there by their names, and not imported before they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpflow_deep import experiments


@pytest.mark.parametrize("name", experiments.__all__)
def test_modules_by_name(name: str) -> None:
    module = getattr(experiments, name)
    assert module.__name__ == f"gpflow_deep.experiments.{name}" and name in dir(experiments)


def test_they_are_imported_when_first_used() -> None:
    code = (
        "import sys, gpflow_deep as gd\n"
        "gd.experiments.published.find\n"
        "assert 'gpflow_deep.experiments.datasets' not in sys.modules\n"
        "assert 'numpy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_none() -> None:
    with pytest.raises(AttributeError, match="'gpflow_deep.experiments' has no attribute 'other'"):
        experiments.other  # noqa: B018
