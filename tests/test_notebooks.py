"""Every notebook runs from beginning to end, and what is stored in it is fit to be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MAX_BYTES = 600_000
SOME_MACHINES_PATH = re.compile(
    r"(?<![\w:/.])/(home|root|tmp|usr|opt|var|mnt|work|Users|private)/|\b[A-Z]:\\|site-packages"
)
NEW_START = """
%reset -f
import os as _os, gpflow as _gpflow
_os.chdir({folder!r})
_gpflow.config.set_config(_gpflow.config.Config())
"""
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: NotebookNode) -> list[NotebookNode]:
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def count_pictures(notebook: NotebookNode) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))


def texts(notebook: NotebookNode) -> list[str]:
    """What a reader sees, pictures aside."""
    shown = [cell.source for cell in notebook.cells]
    for output in outputs(notebook):
        shown.append(output.get("text", ""))
        data = output.get("data", {})
        shown += [content for kind, content in data.items() if kind.startswith("text/")]
    return shown


def test_notebooks_are_found() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {
        "structured_deep_gp",
        "natural_gradients",
        "moment_matching",
    }


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """One for all notebooks, which clear it first: to import TensorFlow takes as long as most of them."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CI", "1")  # cuts loops short, by GPflow's `reduce_in_tests`
        environment.delenv("DOCS", raising=False)
        # The user's own settings and kernels are not to matter, and figures are to be drawn.
        environment.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        environment.setenv("JUPYTER_PREFER_ENV_PATH", "1")
        environment.delenv("MPLBACKEND", raising=False)
        manager = KernelManager(kernel_name=KERNEL["name"])
        manager.start_kernel()
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.notebook
@pytest.mark.timeout(600)
@each_notebook
def test_runs(path: Path, kernel: KernelManager, tmp_path: Path) -> None:
    """In a folder and a namespace of its own, with GPflow's settings as they are at the start."""
    stored, notebook = read(path), read(path)
    fresh = NEW_START.format(folder=str(tmp_path))
    notebook.cells.insert(0, nbformat.v4.new_code_cell(fresh))
    NotebookClient(notebook, km=kernel, timeout=400).execute()

    errors = [output.text for output in outputs(notebook) if output.get("name") == "stderr"]
    assert not [text for text in errors if "Warning:" in text]
    assert count_pictures(notebook) == count_pictures(stored) > 0


@each_notebook
def test_stored_outputs_are_of_one_run(path: Path) -> None:
    counts = [cell.execution_count for cell in code_cells(read(path))]
    assert counts == list(range(1, len(counts) + 1))


@each_notebook
def test_stored_outputs_are_clean(path: Path) -> None:
    notebook = read(path)
    kinds = {output.get("name", output.output_type) for output in outputs(notebook)}
    assert kinds <= {"stdout", "display_data", "execute_result"}
    assert not [text for text in texts(notebook) if SOME_MACHINES_PATH.search(text)]


@each_notebook
def test_is_small_and_has_no_editors_traces(path: Path) -> None:
    notebook = read(path)
    assert path.stat().st_size < MAX_BYTES
    assert notebook.metadata == {"kernelspec": KERNEL}
    assert not any(cell.metadata for cell in notebook.cells)
