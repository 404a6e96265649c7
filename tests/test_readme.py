"""The README's Python snippets run as they stand, one after another in one process, with fewer steps."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

_README = Path(__file__).parents[1] / "README.md"


def test_snippets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", _README.read_text(), flags=re.S)
    assert len(blocks) >= 4
    X, y = load_diabetes(return_X_y=True)
    names = {"X_train": X[:40], "y_train": y[:40], "X_test": X[40:50], "y_test": y[40:50]}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*is built on layers of")
        for block in blocks:
            block = re.sub(r"steps=\d+", "steps=3", block)
            block = block.replace("time_limit=60", 'model="svgp", steps=3')
            exec(compile(block, str(_README), "exec"), names)
    assert np.isfinite(names["mean"]).all() and (names["sd"] > 0).all()
