"""
A worker of several: a process that fits the same model as the others, which TF_CONFIG names. Writes one JSON
line: what it came to.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import tensorflow as tf

from gpflow_deep.training import TrainingError
from tests.models.contract import values
from tests.training.models import Weights, quiet_fit

__all__ = ["SETTINGS"]

SETTINGS: dict[str, Any] = dict(
    steps=15,
    learning_rate=0.1,
    natural_gradient=0.1,
    validation_fraction=0.2,
    validate_every=5,
)


def main(folder: str, killed: int) -> None:
    """
    Fit.

    :param killed: Which worker dies on the way, after step 9; -1 for none.
    """
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = Weights()

    def kill(step: int, loss: float) -> None:
        if step == 9 and strategy.cluster_resolver.task_id == killed:
            os._exit(9)

    saved: dict[str, Any] = dict(checkpoint_dir=folder, checkpoint_every=6)
    try:
        result = quiet_fit(
            model, strategy=strategy, progress=True, callback=kill, **saved, **SETTINGS
        )
    except TrainingError as error:
        print(json.dumps({"error": str(error), "step": error.step}), flush=True)
        return
    found = {"losses": result.history["loss"].tolist(), "values": values(model).tolist()}
    print(json.dumps({**found, "score": result.best_score}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
