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

from ..compiling import few_steps_are_not_compiled
from .public import ROOMS, Example, examples, public_names

__all__ = ["few_steps_are_not_compiled"]
_PAGES = Path(__file__).parents[2] / "docs" / "api"

#: Names that have no example yet. The list may only become shorter.
_WITHOUT_EXAMPLE: set[str] = set()


def _documented(room: str) -> list[str]:
    text = (_PAGES / f"{room}.rst").read_text()
    return re.findall(r"^\.\. auto(?:class|function|data|exception):: (\w+)$", text, flags=re.M)


@pytest.mark.parametrize("room", ROOMS)
def test_page_has_every_public_name_once(room: str) -> None:
    public = [name.rpartition(".")[2] for name in public_names() if name.rpartition(".")[0] == room]
    assert sorted(_documented(room)) == sorted(public)


def test_every_room_is_in_the_contents() -> None:
    contents = (_PAGES / "index.md").read_text().split("```{toctree}")[1].split()
    assert set(ROOMS) <= set(contents)


def _on_its_page(name: str) -> bool:
    """Whether an example of the page itself uses it."""
    room, _, word = name.rpartition(".")
    lines = re.findall(r"^(?:>>>|\.\.\.) .*$", (_PAGES / f"{room}.rst").read_text(), flags=re.M)
    return any(re.search(rf"\b{word}\b", line) for line in lines)


def test_names_without_example_are_known() -> None:
    without = {name for name in public_names() if not (examples(name) or _on_its_page(name))}
    assert without == _WITHOUT_EXAMPLE


@pytest.mark.filterwarnings("ignore:The chains have not converged:UserWarning")
@pytest.mark.parametrize("name", sorted(set(public_names()) - _WITHOUT_EXAMPLE))
def test_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names that the page before the reference promises."""
    gd.presets.names()  # all of the package's are known before a copy is made
    monkeypatch.setattr(registry, "_MODELS", dict(registry._MODELS))
    for example in examples(name):
        _run(example, name)


@pytest.mark.parametrize(
    "page",
    [p for p in sorted(_PAGES.glob("*.rst")) if ">>>" in p.read_text()],
    ids=lambda p: p.stem,
)
def test_examples_of_pages(page: Path) -> None:
    _run(Example(page.read_text(), page, 1), page.stem)


def _run(example: Example, name: str) -> None:
    X = np.linspace(0.0, 1.0, 20)[:, None]
    names = {"np": np, "tf": tf, "gpflow": gpflow, "gd": gd, "X": X, "Y": np.sin(6.0 * X)}
    text, path, line = example
    test = doctest.DocTestParser().get_doctest(text, names, name, str(path), line - 1)
    runner, report = doctest.DocTestRunner(verbose=False), []
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
