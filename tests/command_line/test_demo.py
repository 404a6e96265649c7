from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from gpflow_deep.command_line import demo


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_QUICK_STEPS", 2)
    monkeypatch.setattr(demo, "_PIXELS", 60)
    monkeypatch.setattr(demo, "_REGRESSORS", {"one": ("svgp", 1), "two": ("mean-field", 2)})
    lines: list[str] = []
    rows = demo.run_demo(tmp_path / "out", quick=True, progress=False, echo=lines.append)
    assert [row["model"] for row in rows] == ["one", "two", *demo._CLASSIFIERS]
    assert np.isfinite([row["log density"] for row in rows]).all()
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == rows
    assert any("Your own table" in line for line in lines)
    for name in ("regression.png", "classification.png"):
        assert image.imread(tmp_path / "out" / name).std() > 0.05


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder where nobody can write")
def test_a_folder_that_cannot_be_written_is_told_first() -> None:
    lines: list[str] = []
    with pytest.raises(OSError, match="^/proc/self: expected a folder that can be written to"):
        demo.run_demo("/proc/self", quick=True, progress=False, echo=lines.append)
    assert not lines
