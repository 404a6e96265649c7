"""The reference has every public name, and every public name has an example, which runs."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.presets import registry

from .public import ROOMS, examples, public_names

_PAGES = Path(__file__).parents[2] / "docs" / "api"

#: Names that have no example yet. The list may only become shorter.
_WITHOUT_EXAMPLE: set[str] = set()


def _documented(room: str) -> list[str]:
    text = (_PAGES / f"{room}.rst").read_text()
    return re.findall(r"^\.\. auto(?:class|function|data|exception):: (\w+)$", text, flags=re.M)


@pytest.mark.parametrize("room", ROOMS)
def test_page_has_every_public_name_once(room: str) -> None:
    public = [name.split(".")[1] for name in public_names() if name.startswith(f"{room}.")]
    assert sorted(_documented(room)) == sorted(public)


def test_every_room_is_in_the_contents() -> None:
    contents = (_PAGES / "index.md").read_text().split("```{toctree}")[1].split()
    assert set(ROOMS) <= set(contents)


def test_names_without_example_are_known() -> None:
    assert {name for name in public_names() if not examples(name)} == _WITHOUT_EXAMPLE


@pytest.mark.filterwarnings("ignore:The chains have not converged:UserWarning")
@pytest.mark.parametrize("name", sorted(set(public_names()) - _WITHOUT_EXAMPLE))
def test_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names that the page before the reference promises."""
    gd.presets.names()  # all of the package's are known before a copy is made
    monkeypatch.setattr(registry, "_MODELS", dict(registry._MODELS))
    X = np.linspace(0.0, 1.0, 20)[:, None]
    runner = doctest.DocTestRunner(verbose=False)
    for text, path, line in examples(name):
        names = {"np": np, "tf": tf, "gpflow": gpflow, "gd": gd, "X": X, "Y": np.sin(6.0 * X)}
        test = doctest.DocTestParser().get_doctest(text, names, name, str(path), line - 1)
        report: list[str] = []
        runner.run(test, out=report.append)
        assert not runner.failures, "".join(report)
