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

__all__: list[str] = []


def main(folder: str, steps: int, killed_at: int) -> None:
    """
    Fit.

    :param killed_at: The step after which worker 1 is killed; 0 for none.
    """
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = Weights()

    def kill(step: int, loss: float) -> None:
        if step == killed_at and strategy.cluster_resolver.task_id == 1:
            os._exit(9)

    settings: dict[str, Any] = dict(
        steps=steps,
        learning_rate=0.1,
        natural_gradient=0.1,
        validation_fraction=0.2,
        validate_every=5,
        checkpoint_dir=folder,
        checkpoint_every=6,
        progress=True,
        callback=kill,
    )
    try:
        result = quiet_fit(model, strategy=strategy, **settings)
    except TrainingError as error:
        print(json.dumps({"error": str(error), "step": error.step}), flush=True)
        return
    found = {"losses": result.history["loss"].tolist(), "values": values(model).tolist()}
    print(json.dumps({**found, "score": result.best_score}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
