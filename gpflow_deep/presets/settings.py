"""What a study's run can be told."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

__all__ = ["CLASSES", "OWN_SETTINGS", "Settings"]

CLASSES = ("bernoulli", "softmax")  # likelihoods of two, of any number
#: Those that are parameters of an estimator, or follow from its data, alone.
OWN_SETTINGS = frozenset({"likelihood", "num_classes", "validation_fraction"})


def _setting(
    default: int | float | str, help: str, *, added: bool = False, choices: tuple[str, ...] = ()
) -> Any:
    """
    :param added: that the first results were written without it: runs with its default are those runs.
    :param choices: the values of a setting that is a name.
    """
    return field(default=default, metadata={"help": help, "added": added, "choices": choices})


@dataclass(frozen=True)
class Settings:
    """
    Size, training and evaluation of a model. Each is an option of `gpflow-deep benchmark`.

    The defaults are those of Lindinger, Reeb, Lippert and Rakitsch, *Beyond the Mean-Field:
    Structured Deep Gaussian Processes*, NeurIPS 2020.

    >>> settings = gd.presets.Settings(num_layers=3, hidden_dim=0)  # as wide as the inputs
    >>> settings.hidden_dims(input_dim=8)
    (8, 8)

    :raises ValueError: for a value that no run could use.
    """

    num_layers: int = _setting(2, "GP layers, the output layer included.")
    hidden_dim: int = _setting(5, "GPs in each hidden layer; 0: as many as inputs.")
    num_inducing: int = _setting(128, "Inducing points of each layer.")
    num_samples: int = _setting(5, "Samples through the layers in training.")
    likelihood_variance: float = _setting(0.01, "Noise variance at the start, of scaled targets.")
    steps: int = _setting(20_000, "Training steps, at most.")
    batch_size: int = _setting(512, "Points in a minibatch.")
    learning_rate: float = _setting(0.005, "Adam's, at the start.")
    decay_rate: float = _setting(0.98, "Factor of the learning rate ...")
    decay_steps: int = _setting(1000, "... every so many steps.")
    natural_gradient: float = _setting(0.0, "Step size of natural gradients; 0: Adam for all.")
    validation_fraction: float = _setting(
        0.1, "Share of the training points held out for early stopping; 0: none."
    )
    validate_every: int = _setting(500, "Steps from one look at the held-out points to the next.")
    patience: int = _setting(10, "Looks without improvement before training stops.")
    test_samples: int = _setting(100, "Components of the predictive mixture.")
    # The posteriors' own default, by its value: to ask them takes TensorFlow, which help does not need.
    hidden_scale: float = _setting(
        1e-2, "Factor of structured posteriors in hidden layers at the start.", added=True
    )
    kernel: str = _setting(
        "own",
        "Kernel of every GP; own: the family's.",
        added=True,
        choices=("own", "rbf", "matern12", "matern32", "matern52"),
    )
    likelihood: str = _setting(
        "gaussian",
        "Likelihood of the targets; bernoulli and softmax take classes 0, 1, ...",
        added=True,
        choices=("gaussian", "student-t", *CLASSES),
    )
    inducing_init: str = _setting(
        "kmeans",
        "How inducing inputs that GPs share are chosen: k-means, or greedily, by conditional variance.",
        added=True,
        choices=("kmeans", "greedy"),
    )
    noise_floor: float = _setting(1e-6, "The noise variance is not less than this.", added=True)
    compute_dtype: str = _setting(
        "own",
        "Of training's products over points in structured models, of the predictions' in exact GPs; own: that"
        " of the parameters.",
        added=True,
        choices=("own", "float32", "float64"),
    )
    positive_bijector: str = _setting(
        "own",
        "What keeps lengthscales and variance of a named kernel positive: of exp a step is a share of them;"
        " own: GPflow's setting, softplus if nothing else was set.",
        added=True,
        choices=("own", "exp", "softplus"),
    )

    num_classes: int = _setting(
        0, "Number of classes of softmax; 0: the largest in the data and one.", added=True
    )
    tempering_steps: int = _setting(
        0,
        "Steps in which the weight of the divergence from the prior rises from a tenth to one; 0: none.",
        added=True,
    )

    def __post_init__(self) -> None:
        may_be_zero = {"hidden_dim", "natural_gradient", "validation_fraction"}
        may_be_zero |= {"num_classes", "tempering_steps"}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if choices := entry.metadata["choices"]:
                if not isinstance(value, str) or value not in choices:
                    raise ValueError(
                        f"{entry.name}: expected one of {', '.join(choices)}, got {value!r}."
                    )
                continue
            # Of NumPy, which is not imported for this: help is not to wait.
            if getattr(value, "shape", None) == ():
                value = value.item()  # which JSON has
                object.__setattr__(self, entry.name, value)
            kind = int if isinstance(entry.default, int) else (int, float)
            if (
                isinstance(value, bool)
                or not isinstance(value, kind)
                or not 0 <= value < math.inf
                or (value == 0 and entry.name not in may_be_zero)
            ):
                what = "integer" if kind is int else "number"
                zero = " or zero" if entry.name in may_be_zero else ""
                raise ValueError(f"{entry.name}: expected a positive {what}{zero}, got {value!r}.")
        for name in ("decay_rate", "natural_gradient"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name}: expected at most 1, got {getattr(self, name)}.")
        if not self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction: expected less than 1, got {self.validation_fraction}."
            )

    def hidden_dims(self, input_dim: int) -> tuple[int, ...]:
        """The widths of the hidden layers."""
        return (self.hidden_dim or input_dim,) * (self.num_layers - 1)

    def training(self) -> dict[str, Any]:
        """
        What they are to :func:`gpflow_deep.training.fit`, by its arguments' names.

        >>> gd.presets.Settings(steps=100).training()["steps"]
        100
        """
        names = ("steps", "batch_size", "learning_rate", "decay_rate", "decay_steps")
        options = {name: getattr(self, name) for name in (*names, "validate_every", "patience")}
        if self.tempering_steps:
            from gpflow_deep.training import Tempering  # imports TensorFlow

            options["tempering"] = Tempering(self.tempering_steps)
        return {**options, "natural_gradient": self.natural_gradient or None}

    def identity(self) -> dict[str, int | float | str]:
        """What tells runs apart: all settings, those added later only where they are not at their default."""
        added = self.added_defaults()
        values = asdict(self)
        return {name: value for name, value in values.items() if added.get(name) != value}

    @classmethod
    def added_defaults(cls) -> dict[str, Any]:
        """What the settings that the first results were written without were at in these."""
        return {entry.name: entry.default for entry in fields(cls) if entry.metadata["added"]}
