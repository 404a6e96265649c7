"""What the pages of the site show runs: the code of each page in order, in one process, with few steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

_DOCS = Path(__file__).parents[2] / "docs"
_PAGES = sorted(
    path
    for path in _DOCS.rglob("*.md")
    if not {"_build", "_copied", "api"} & set(path.relative_to(_DOCS).parts)
)
#: Fits in guides are for a reader's time, not for a test's.
_SHORTER = (
    (r"\bsteps=(?!4000)\d+", "steps=2"),
    # Chains say whether they agree from eight kept states on, and keep those of their last quarter.
    (r"\bsteps=4000", "steps=40"),
    (r"keep_every=\d+", "keep_every=1"),
    (r"num_(results|burnin_steps|leapfrog_steps)=\d+", r"num_\1=2"),
    (r"time_limit=\d+", 'model="svgp", steps=2'),
    (r'model="auto", ', ""),
    (r'Regressor\("gp"', 'Regressor("gp", kernel="rbf"'),
    (r'"maxiter": \d+', '"maxiter": 2'),
)


def _code(page: Path) -> list[str]:
    """Of blocks that a reader can paste: what needs devices or files of the reader's is marked otherwise."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), flags=re.S | re.M)


@pytest.fixture(autouse=True)
def compiled_again() -> Iterator[None]:
    """After the pages, whose two steps are not worth a compilation, as an exact GP's hundreds are."""
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.filterwarnings("ignore:.*run_functions_eagerly:UserWarning")
@pytest.mark.filterwarnings("ignore:The chains have not converged:UserWarning")
@pytest.mark.parametrize(
    "page", [page for page in _PAGES if _code(page)], ids=lambda page: page.stem
)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem}
    for block in _code(page):
        for pattern, replacement in _SHORTER:
            block = re.sub(pattern, replacement, block)
        tf.config.run_functions_eagerly('("gp"' not in block)
        exec(compile(block, str(page), "exec"), names)


def test_pages_with_code_are_found() -> None:
    assert len([page for page in _PAGES if _code(page)]) >= 10
