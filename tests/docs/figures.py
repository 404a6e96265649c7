"""Figures in sentences, and the records that they are of."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recorded = _module(ROOT / "docs" / "recorded.py")


def figures_in(page: str, sentence: str) -> tuple[str, ...]:
    """The figures of a sentence that the page has once, wherever its lines break."""
    (found,) = re.findall(sentence, " ".join((ROOT / page).read_text().split()))
    return (found,) if isinstance(found, str) else found


def agree(said: Iterable[str], values: Iterable[float]) -> None:
    """Each figure is its value, rounded to as many digits as the figure has."""
    for figure, value in zip(said, values, strict=True):
        assert f"{value:.{len(figure.partition('.')[2])}f}" == figure


def least_above(said: str, values: Iterable[float]) -> bool:
    """Whether all values are below a figure, and no figure of as many digits that is less would do."""
    unit = 10.0 ** -len(said.partition(".")[2])
    return 0.0 < float(said) - max(values) <= unit
