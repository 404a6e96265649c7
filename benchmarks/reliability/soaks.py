"""Many steps in one process, and many fits: the memory stays bounded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import gpflow
import numpy as np

from gpflow_deep import training

from .outcomes import FINE, SILENT, Case, Outcome

# Above what TensorFlow's own pools still take after the first pieces.
_BOUND_MB = 50.0


def soaks() -> Iterator[Case]:
    """One long fit, looked at ten times, and many short ones."""
    yield {"soak": "steps", "pieces": 10, "each": 20_000}
    yield {"soak": "fits", "pieces": 10, "each": 20}


def soak(case: Case) -> Outcome:
    sizes = []

    def look() -> None:
        gc.collect()
        sizes.append(_resident_mb())

    if case["soak"] == "steps":
        steps = case["pieces"] * case["each"]
        _fit(steps, lambda step: look() if step % case["each"] == 0 else None)
    else:
        for _ in range(case["pieces"]):
            for _ in range(case["each"]):
                _fit(2)
            look()
    # The first pieces fill pools and caches that are then used again.
    growth = max(sizes) - sizes[len(sizes) // 3]
    said = f"{growth:.1f} MB more after {case['pieces'] * case['each']} {case['soak']}"
    return (FINE if growth < _BOUND_MB else SILENT), said


def _fit(steps: int, monitor: object = None) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 1))
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(), X[:4].copy()
    )
    options = {"steps": steps, "batch_size": 5, "learning_rate": 1e-4, "progress": False}
    training.fit(model, (X, np.sin(X)), monitor=monitor, **options)


def _resident_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return float(status.partition("VmRSS:")[2].split()[0]) / 1024.0
