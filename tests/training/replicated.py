"""
Fits on two replicas and on one: run as a program, since devices have to be configured before TensorFlow
starts. Writes one JSON line for each thing that is compared or refused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.utilities import set_trainable

from gpflow_deep.optimizers import SGHMC, NaturalGradient
from gpflow_deep.training import Tempering, TrainingError, fit
from tests.models.contract import X, Y, make_model, values
from tests.training.models import TERM, Killed, Line, Weights, WithTerm, kill_at, quiet_fit

__all__: list[str] = []

#: Draws of points only, and of inducing outputs too; and the natural gradient's step size.
FAMILIES = {"stripes-and-arrow": 0.1, "global-inducing": None, "sampled": None}
RUN: dict[str, Any] = dict(
    steps=60,
    learning_rate=0.3,
    natural_gradient=0.1,
    validation_fraction=0.2,
    validate_every=3,
    patience=2,
)


def _report(name: str, **found: Any) -> None:
    print(json.dumps({"name": name, **found}), flush=True)


def _replicas_are_equal(model: tf.Module, strategy: tf.distribute.Strategy) -> bool:
    copies = [
        [copy.numpy() for copy in strategy.experimental_local_results(variable)]
        for variable in model.variables
    ]
    return all(len(pair) == 2 and np.array_equal(*pair) for pair in copies)


def _refusal(run: Callable[[], Any]) -> str:
    try:
        run()
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _families(strategy: tf.distribute.Strategy) -> None:
    for family, gamma in FAMILIES.items():
        settings: dict[str, Any] = dict(
            steps=3, batch_size=10, learning_rate=0.01, natural_gradient=gamma
        )
        if family == "global-inducing":
            settings["tempering"] = Tempering(4)
        one = make_model(family)
        before = values(one)
        with strategy.scope():
            two = make_model(family)
        losses = [
            fit(model, (X, Y), strategy=own, progress=False, **settings).history["loss"]
            for model, own in ((one, None), (two, strategy))
        ]
        _report(
            family,
            equal=_replicas_are_equal(two, strategy),
            losses=float(np.abs(losses[0] / losses[1] - 1.0).max()),
            parameters=float(np.abs(values(two) - values(one)).max()),
            step=float(np.abs(values(one) - before).max()),
        )


def _runs(strategy: tf.distribute.Strategy, folder: Path) -> None:
    """Early stopping, checkpoints, the bar and natural gradients of a model that is quick to compile."""
    one = Weights()
    alone = quiet_fit(one, **RUN)

    def run(**settings: Any) -> tuple[Weights, Any]:
        with strategy.scope():
            model = Weights()
        return model, quiet_fit(model, strategy=strategy, **RUN, **settings)

    two, whole = run(progress=True)
    saved = dict(checkpoint_dir=folder, checkpoint_every=7)
    try:
        run(callback=kill_at(9), **saved)
    except Killed:
        pass
    resumed, rest = run(**saved)
    _report(
        "run",
        equal=_replicas_are_equal(two, strategy),
        stopped=[alone.steps, whole.steps],
        scores=float(np.nanmax(np.abs(alone.history["validation"] - whole.history["validation"]))),
        parameters=float(np.abs(values(two) - values(one)).max()),
        resumed=np.array_equal(values(two), values(resumed))
        and np.array_equal(whole.history["loss"], rest.history["loss"]),
    )


def _fixed(strategy: tf.distribute.Strategy) -> None:
    """What `set_trainable` fixes under a strategy stays, and what it frees again moves."""
    with strategy.scope():
        model = Weights()
    before = model.q_mu.numpy(), model.log_noise.numpy()
    set_trainable(model.q_mu, False)
    quiet_fit(model, strategy=strategy, steps=2)
    fixed = np.array_equal(model.q_mu.numpy(), before[0]), model.log_noise.numpy() != before[1]
    set_trainable(model.q_mu, True)
    quiet_fit(model, strategy=strategy, steps=2)
    freed = not np.array_equal(model.q_mu.numpy(), before[0])
    _report("set_trainable", fixed=bool(all(fixed)), freed=freed)


def _failure(strategy: tf.distribute.Strategy) -> None:
    """A loss that is not finite leaves the parameters before it in all replicas."""
    with strategy.scope():
        model = Line(3, lambda loss, slope: loss + np.nan)
    step = 0
    try:
        quiet_fit(model, strategy=strategy, learning_rate=0.1)
    except TrainingError as error:
        step = error.step
    _report(
        "failure",
        equal=_replicas_are_equal(model, strategy),
        step=step,
        slope=float(model.slope.numpy()[0]),
    )


def _own_bound(strategy: tf.distribute.Strategy) -> None:
    """Each replica has draws of its own, and every run the same."""
    losses = []
    for global_seed in range(2):
        tf.random.set_seed(global_seed)
        with strategy.scope():
            model = make_model("mean-field")
        model.__class__ = WithTerm
        settings: dict[str, Any] = dict(steps=1, batch_size=None, seed=5)
        losses.append(quiet_fit(model, (X, Y), strategy=strategy, **settings).history["loss"])
    model = make_model("mean-field")
    model.num_data = len(X)
    half = len(X) // 2
    seeds = [tf.random.experimental.stateless_fold_in([5, 0], i) for i in range(2)]
    by_hand = [
        TERM - model.elbo((X[own], Y[own]), noise=model.draw_noise(half, seed=seed))
        for own, seed in zip((slice(half), slice(half, None)), seeds, strict=True)
    ]
    _report("own bound", losses=np.concatenate(losses).tolist(), by_hand=float(np.mean(by_hand)))


def _refusals(strategy: tf.distribute.Strategy) -> None:
    own = tf_keras.optimizers.Adam(0.1)
    natural = NaturalGradient(0.1)
    with strategy.scope():
        model, of_keras_3 = Weights(), keras.optimizers.Adam(0.1)
    other = tf.distribute.MirroredStrategy(["CPU:0"])
    refusals = {
        "no strategy": lambda: quiet_fit(model),
        "another strategy": lambda: quiet_fit(model, strategy=other),
        "model outside": lambda: quiet_fit(Weights(), strategy=strategy),
        "optimizer outside": lambda: quiet_fit(model, strategy=strategy, optimizer=own),
        "natural outside": lambda: quiet_fit(model, strategy=strategy, natural_gradient=natural),
        "keras 3": lambda: quiet_fit(model, strategy=strategy, optimizer=of_keras_3),
        "odd batch": lambda: quiet_fit(model, strategy=strategy, batch_size=7),
        "no strategy at all": lambda: quiet_fit(model, strategy="mirrored"),
        "sampler outside": lambda: quiet_fit(model, strategy=strategy, sampler=SGHMC()),
    }
    _report("refusals", **{name: _refusal(run) for name, run in refusals.items()})


def main() -> None:
    """Compare."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    _runs(strategy, Path(sys.argv[1]))
    _fixed(strategy)
    _failure(strategy)
    _own_bound(strategy)
    _refusals(strategy)
    _families(strategy)


if __name__ == "__main__":
    main()
