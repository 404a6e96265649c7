"""
What the site takes from elsewhere in the repository. Sphinx reads pages below its own folder only, so that
notebooks, reports and tables are brought there before it starts.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import recorded

_ROOT = Path(__file__).parents[1]


def gather(folder: Path) -> None:
    """All of it, into a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    # In the same places, so that they find each other.
    for place in ("notebooks", "benchmarks/results"):
        _copy(_ROOT / place, folder / place)
    recorded.write(folder / "tables")


def _copy(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        if path.suffix in (".ipynb", ".md", ".png") and ".ipynb_checkpoints" not in path.parts:
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
