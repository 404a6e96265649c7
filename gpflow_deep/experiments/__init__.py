"""The papers' studies: data sets, splits, models by name, a resumable runner and reports."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import benchmark, datasets, published, ranks, report, results, scores, splits, summary

__all__ = [
    "benchmark",
    "datasets",
    "published",
    "ranks",
    "report",
    "results",
    "scores",
    "splits",
    "summary",
]


def __getattr__(name: str) -> ModuleType:
    # Imported when first used, so that the command line answers at once.
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
