"""A fitted model of one family, and what it takes to build it again elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_deep import metrics
from gpflow_deep.models import GlobalInducingBNN
from gpflow_deep.presets import Settings, get
from gpflow_deep.presets.exact import ExactGP
from gpflow_deep.presets.settings import CLASSES

from .calibration import Errors
from .error_forest import ErrorForest
from .labels import Labels, class_probabilities
from .rows import Mixture
from .tails import Tails

__all__ = ["FittedModel", "precision", "variables_of"]

_ERRORS, _LABELS = ".errors.", ".labels."  # before the names of their arrays
_ROWS = 1000  # predicted at a time, so that memory does not grow with them
_LEAST_MASS = 1e-10  # that a difference of distribution functions tells


class _Defaults:
    """
    GPflow's default float and jitter are those of the process: threads that want the same ones have them
    together, others wait for these.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._own = threading.local()
        self._inside = 0  # threads
        self._set: tuple[type, float] | None = None  # for these
        self._outside = gpflow.config.config()

    @contextmanager
    def set_to(self, float_name: str, jitter: float | None) -> Iterator[None]:
        if getattr(self._own, "inside", False):  # wants what it has
            yield
            return
        self._enter(np.dtype(float_name).type, jitter)
        self._own.inside = True
        try:
            yield
        finally:
            self._own.inside = False
            self._leave()

    def _enter(self, float_type: type, jitter: float | None) -> None:
        with self._changed:
            if not self._inside:
                self._outside = gpflow.config.config()
            jitter = self._outside.jitter if jitter is None else jitter
            wanted = float_type, jitter
            self._changed.wait_for(lambda: not self._inside or self._set == wanted)
            if not self._inside:
                self._outside, self._set = gpflow.config.config(), wanted
                gpflow.config.set_default_float(float_type)
                gpflow.config.set_default_jitter(jitter)
            self._inside += 1

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            if not self._inside:
                gpflow.config.set_config(self._outside)
                self._changed.notify_all()


_DEFAULTS = _Defaults()


def precision(float_name: str, jitter: float | None) -> AbstractContextManager[None]:
    """
    For a while, GPflow's default float and jitter.

    :param float_name: "float32" or "float64".
    :param jitter: ``None`` for GPflow's own.
    """
    return _DEFAULTS.set_to(float_name, jitter)


@dataclass(eq=False)
class FittedModel:
    """
    A model of a family, in standardised units.

    It can be pickled and copied: what is kept then are the values of its variables by the paths of its
    parameters, unconstrained, as to constrain and unconstrain a value may change its last digit.

    :param name: of the preset.
    :param settings: what it was built and trained with.
    :param seed: of everything random.
    :param num_inputs: D.
    :param num_outputs: P, columns of the targets; or the number of classes.
    :param float_name: of its parameters.
    :param jitter: GPflow's default jitter while it was fitted.
    :param model: the GPflow model.
    :param report: what its training came to.
    :param errors: what is made of its predictions of observations, one Gaussian each.
    :param labels: what is made of an exact GP's predictions of labels.
    :param own_rows: log probabilities of the classes of the rows that such a GP was fitted to, each row
        predicted from others [N], where it was fitted to all; not kept with the rest.
    """

    name: str
    settings: Settings
    seed: int
    num_inputs: int
    num_outputs: int
    float_name: str
    jitter: float
    model: Any
    report: dict[str, float] = field(default_factory=dict)
    errors: Errors | None = None
    labels: Labels | None = None
    own_rows: np.ndarray | None = None
    _posterior: Any = field(default=None, init=False, repr=False)

    def predict_f_mixture(self, X: np.ndarray) -> Mixture:
        """Components of the functions: means [S, N, T], variances [S, N, T], log weights [S]."""
        return self._in_parts("predict_f_mixture", X)

    def predict_y_mixture(self, X: np.ndarray) -> Mixture:
        """Components of new observations: means [S, N, P], variances [S, N, P], log weights [S]."""
        if self.errors is None:
            return self._in_parts("predict_y_mixture", X)
        return self.errors.mixture(X, *self.gaussian(X))

    def log_density(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """Log density of new observations, [N]."""
        if self.labels is not None:
            codes = Y.astype(np.intp)
            return np.log(np.take_along_axis(self.class_probabilities(X), codes, axis=1))[:, 0]
        parts = zip(_parts(X), _parts(Y), strict=True)
        if self.errors is not None:
            densities = [metrics.log_density(y, *self.predict_y_mixture(x)) for x, y in parts]
            return np.concatenate(densities)
        with precision(self.float_name, self.jitter):
            posterior = self._cached()
            return np.concatenate(
                [np.asarray(posterior.predict_log_density(part)) for part in parts]
            )

    def log_mean_density(self, X: np.ndarray, Y: np.ndarray, width: float) -> np.ndarray:
        """
        The log of the density of single targets, averaged over so much around each, [N].

        :param width: above zero.
        """
        ends = 0.5 * width, -0.5 * width
        masses = []
        for x, y in zip(_parts(X), _parts(Y), strict=True):
            mixture = self.predict_y_mixture(x)
            masses.append(np.subtract(*(metrics.pit(y + end, *mixture) for end in ends))[:, 0])
        mass = np.concatenate(masses)
        # Far out a distribution function has no digits left, and a density is flat.
        far = mass <= _LEAST_MASS
        density = np.log(np.where(far, 1.0, mass) / width)
        if far.any():
            density[far] = self.log_density(X[far], Y[far])
        return density

    def class_probabilities(self, X: np.ndarray) -> np.ndarray:
        """Of a model of classes, [N, C]."""
        seed = self.seed % 2**16
        labels = self.labels
        return np.concatenate(
            [
                class_probabilities(*self.predict_f_mixture(x), seed)
                if labels is None
                else labels.probabilities(x, *self.gaussian(x), seed)
                for x in _parts(X)
            ]
        )

    def gaussian(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of new observations, both [N, P], of a model that has one component."""
        means, variances, _ = self._in_parts("predict_y_mixture", X)
        return means[0].astype(np.float64), variances[0].astype(np.float64)

    def joint_moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """
        Mean [N, P] and covariance over the points [P, N, N] of new observations, but for what noise adds to
        its diagonal: cubic in N.
        """
        with precision(self.float_name, self.jitter):
            mean, covariance = map(np.asarray, self._cached().predict_f(X, full_cov=True))
        if self.errors is None:
            return mean, covariance
        noise = float(self.model.likelihood.variance.numpy()) * np.eye(len(X))
        return self.errors.moments(X, mean, covariance + noise)

    def sample_f(self, X: np.ndarray, num_samples: int) -> np.ndarray:
        """Draws of the functions [S, N, P], coherent over the points: cubic in N."""
        with precision(self.float_name, self.jitter):
            return np.asarray(self._cached().predict_f_samples(X, num_samples, full_cov=True))

    def variables(self) -> dict[str, tf.Variable]:
        """The variables of the model, by the paths of its parameters."""
        return variables_of(self.model)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All that `from_state` takes: what can be written as JSON, and arrays."""
        facts = {
            "name": self.name,
            "settings": asdict(self.settings),
            "seed": self.seed,
            "num_inputs": self.num_inputs,
            "num_outputs": self.num_outputs,
            "float_name": self.float_name,
            "jitter": self.jitter,
            "report": self.report,
            "tails": self.errors if isinstance(self.errors, Tails) else None,
            "num_points": _num_points(self.model),
        }
        arrays = {path: variable.numpy() for path, variable in self.variables().items()}
        if isinstance(self.errors, ErrorForest):
            arrays |= {_ERRORS + name: array for name, array in self.errors.arrays().items()}
        if self.labels is not None:
            arrays |= {_LABELS + name: array for name, array in self.labels.arrays().items()}
        return facts, arrays

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> FittedModel:
        """
        The model again; predictions are the same to the bit.

        :raises ValueError: where the arrays are not those of the model that the facts tell of.
        """
        facts = dict(facts)
        num_points, tails = facts.pop("num_points"), facts.pop("tails")
        settings = Settings(**facts.pop("settings"))
        with precision(facts["float_name"], facts["jitter"]):
            # The data only give the shapes of a model whose parameters are then all assigned.
            X = np.random.default_rng(0).normal(size=(num_points, facts["num_inputs"]))
            if settings.likelihood in CLASSES:
                Y = np.full([num_points, 1], facts["num_outputs"] - 1.0)
            else:
                Y = np.ones([num_points, facts["num_outputs"]])
            X, Y = X.astype(facts["float_name"]), Y.astype(facts["float_name"])
            # Greedy choices would take longer than all the rest.
            cheap = replace(settings, inducing_init="kmeans")
            model = get(facts["name"]).build(X, Y, cheap, facts["seed"])
            fitted = cls(settings=settings, model=model, **facts)
            errors, labels = _named(_ERRORS, arrays), _named(_LABELS, arrays)
            sizes = fitted.num_inputs, fitted.num_outputs
            if errors:
                fitted.errors = ErrorForest.of_arrays(errors, *sizes)
            elif tails is not None:
                fitted.errors = Tails(*map(tuple, tails))
            if labels:
                fitted.labels = Labels.of_arrays(labels, *sizes)
            others = {p: a for p, a in arrays.items() if not p.startswith((_ERRORS, _LABELS))}
            own = fitted.variables()
            # Which older files have not: no estimator's model has any, and chains are where they were left.
            older = {p: v.numpy() for p, v in own.items() if "excess_sqrt" in p}
            chains = [p for p in others if ".chains[" in p]
            older |= {p.replace(".chains[", ".left["): others[p] for p in chains}
            _assign(own, older | others)
        return fitted

    def __getstate__(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return self.state()

    def __setstate__(self, state: tuple[dict[str, Any], dict[str, np.ndarray]]) -> None:
        self.__dict__.update(FittedModel.from_state(*state).__dict__)

    def _in_parts(self, prediction: str, X: np.ndarray) -> Mixture:
        """A mixture of all rows, computed for some of them at a time."""
        with precision(self.float_name, self.jitter):
            predict = getattr(self._cached(), prediction)
            parts = [[np.asarray(a) for a in predict(x)] for x in _parts(X)]
        means, variances, log_weights = zip(*parts, strict=True)
        return np.concatenate(means, axis=1), np.concatenate(variances, axis=1), log_weights[0]

    def _cached(self) -> Any:
        """The predictive posterior, with what does not depend on the inputs computed once."""
        if self._posterior is None:
            self._posterior = self.model.posterior()
        return self._posterior


def variables_of(model: Any) -> dict[str, tf.Variable]:
    """The variables of a model, by the paths of its parameters."""
    parameters = gpflow.utilities.parameter_dict(model)
    return {path: getattr(p, "unconstrained_variable", p) for path, p in parameters.items()}


def _named(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose paths start so, by the rest of these."""
    return {p.removeprefix(prefix): a for p, a in arrays.items() if p.startswith(prefix)}


def _parts(array: np.ndarray) -> list[np.ndarray]:
    return np.array_split(array, max(1, -(-len(array) // _ROWS)))


def _num_points(model: Any) -> int:
    """Rows of data from which the model's parameters get their shapes."""
    if isinstance(model, ExactGP):
        return int(model.inputs.shape[0])
    if isinstance(model, GlobalInducingBNN):
        return 1 if model.inducing_inputs is None else int(model.inducing_inputs.shape[0])
    return int(model.layers[0].num_inducing)


def _assign(variables: Mapping[str, tf.Variable], arrays: Mapping[str, np.ndarray]) -> None:
    """Set variables, after a check that they are those expected."""
    if variables.keys() != arrays.keys():
        difference = ", ".join(sorted(variables.keys() ^ arrays.keys()))
        raise ValueError(f"expected the parameters of the model, differing: {difference}.")
    for path, variable in variables.items():
        value = arrays[path]
        expected = (tuple(variable.shape), variable.dtype.as_numpy_dtype)
        if (value.shape, value.dtype.type) != expected:
            raise ValueError(
                f"{path}: expected {np.dtype(expected[1])} of shape {expected[0]}, got {value.dtype} of"
                f" shape {value.shape}."
            )
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ValueError(f"{path}: expected finite values, got NaN or infinity.")
    for path, variable in variables.items():
        variable.assign(arrays[path])
