"""
The README's picture: what its first example predicts, beside an exact GP with the same kernel.

    python docs/picture.py docs/_static/photograph.png
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from gpflow_deep import metrics

_README = Path(__file__).parents[1] / "README.md"


def first_example() -> dict[str, Any]:
    """The names that it leaves."""
    block = re.search(r"^```python\n(.*?)^```$", _README.read_text(), flags=re.S | re.M)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[1], names)
    return names


def exact_gp(X: np.ndarray, Y: np.ndarray) -> gpflow.models.GPR:
    """With its best hyperparameters."""
    model = gpflow.models.GPR((X, Y), gpflow.kernels.Matern32(), noise_variance=0.01)
    gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
    return model


def _draw(ax: Axes, title: str, names: dict[str, Any], everywhere: Any, tested: Any) -> None:
    y, Y, test = names["y"], names["Y"], names["test"]
    centre, spread = y.mean(), y.std()
    low, middle, high = (
        spread * line[:, 0] + centre for line in metrics.quantile([0.025, 0.5, 0.975], *everywhere)
    )
    density = np.mean(metrics.log_density(Y[test], *tested)) - np.log(spread)
    inside = metrics.coverage(Y[test], *tested, level=0.95)
    pixels = np.arange(len(y))
    ax.fill_between(pixels, low, high, alpha=0.3, linewidth=0, label="95% interval")
    ax.plot(pixels, middle, linewidth=1.2, label="median")
    ax.plot(test, y[test], "k.", markersize=2.5, label="test pixels")
    ax.set_title(
        f"{title}\ntest log density {density:.2f}, {inside:.0%} in the 95% interval", fontsize=10
    )
    ax.set(xlabel="pixel along the line", xlim=(0, len(y) - 1))


def main(path: Path) -> None:
    """Draw it."""
    names = first_example()
    X, Y, train, test = (names[name] for name in ("X", "Y", "train", "test"))
    exact, deep = exact_gp(X[train], Y[train]), names["model"]

    def one_gaussian(Xnew: np.ndarray) -> tuple[Any, Any, np.ndarray]:
        mean, variance = exact.predict_y(Xnew)
        return mean[None], variance[None], np.zeros(1)

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), sharey=True, layout="constrained")
    _draw(axes[0], "exact GP", names, one_gaussian(X), one_gaussian(X[test]))
    _draw(
        axes[1],
        "deep GP of two layers",
        names,
        deep.predict_y_mixture(X),
        deep.predict_y_mixture(X[test]),
    )
    axes[0].set_ylabel("brightness")
    axes[0].legend(loc="lower right", fontsize=8)
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
