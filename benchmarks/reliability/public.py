"""
What is called, with which arguments, and what these may be: everything public that takes numbers, arrays or
parts. A test compares it with the packages' own lists of names.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np

import gpflow_deep as gd
from gpflow_deep import training
from gpflow_deep.estimators import DeepGPRegressor
from gpflow_deep.presets import Settings

BAD: dict[str, Any] = {
    "nan": np.nan,
    "inf": np.inf,
    "negative": -1,
    "zero": 0,
    "half": 0.5,
    "text": "text",
    "none": None,
    "true": True,
    "empty": np.zeros((0, 2)),
    "vector of text": np.array(["a", "b"]),
    "complex": np.full((12, 2), 1j),
    "nan matrix": np.full((12, 2), np.nan),
    "cube": np.zeros((2, 3, 4)),
    "object": object(),
    "list of lists": [[1.0], [2.0, 3.0]],
    "huge": 10**30,
}

#: Which of these an argument of a kind can have.
ACCEPTED: dict[str, set[str]] = {
    "count": set(),
    "size or zero": {"zero", "huge"},
    "seed": {"zero"},
    "size": {"huge"},
    "degrees": {"huge", "empty"},
    "images": {"cube"},
    "points": {"empty"},
    "draws": {"zero", "empty"},
    "positive": {"half", "huge"},
    "not negative": {"zero", "half", "huge"},
    "share": {"half"},
    "share or none": {"half", "zero"},
    "weight": {"half", "huge", "true"},
    "flag": {"true"},
    "choice": set(),
    "part": set(),
    "array": set(),
    # A point without a value has a prediction without one, and spoils no other's.
    "new inputs": {"nan matrix", "empty"},
}


class Argument(NamedTuple):
    """How to make a value that is right, None to leave it at its default; and what else it may be."""

    make: Callable[[], Any] | None
    kind: str


def _data() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(12, 2))
    return X, np.sin(X[:, :1])


@cache
def _layers() -> list[Any]:
    return gd.layers.build_layers(_data()[0], (2,), num_inducing=3)


@cache
def _layers_of_latents() -> Any:
    return gd.layers.build_layers(_data()[0], (2,), num_inducing=3, latent_dim=1)


@cache
def _amortized_layers() -> list[Any]:
    return gd.layers.build_amortized_layers(2, (2,), num_inducing=2)


def _network() -> list[Any]:
    return [gd.layers.bayesian.Flatten(), gd.layers.BayesianDense(1)]


@cache
def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential()


@cache
def _likelihood() -> gpflow.likelihoods.Likelihood:
    return gpflow.likelihoods.Gaussian(0.1)


@cache
def _model() -> Any:
    return gd.models.DeepGP(_layers(), _likelihood(), num_samples=2, num_prediction_samples=3)


@cache
def _fitc() -> Any:
    return gd.models.FITCEPDeepGP(_layers(), _likelihood(), num_data=12)


def _mixture() -> dict[str, Argument]:
    """Means and variances [S, N, P] and log weights [S] of predictions."""
    shape = (2, 12, 1)
    return {
        "Y": Argument(lambda: _data()[1], "array"),
        "means": Argument(lambda: np.zeros(shape), "array"),
        "variances": Argument(lambda: np.ones(shape), "array"),
        "log_weights": Argument(lambda: np.log([0.5, 0.5]), "array"),
        "level": Argument(lambda: 0.9, "share"),
        "levels": Argument(lambda: [0.1, 0.9], "share"),
    }


def _classes() -> dict[str, Argument]:
    return {
        "Y": Argument(lambda: np.arange(12) % 2, "array"),
        "probabilities": Argument(lambda: np.full((12, 2), 0.5), "array"),
        "num_bins": Argument(lambda: 3, "count"),
        "inside": Argument(lambda: np.full((3, 2), 0.5), "array"),
        "outside": Argument(lambda: np.eye(2), "array"),
    }


def _one(value: Any, *names: str, kind: str = "count") -> dict[str, Argument]:
    return {name: Argument(lambda: value, kind) for name in names}


#: By name, wherever a callable's own table has no other.
COMMON: dict[str, Argument] = {
    "X": Argument(lambda: _data()[0], "array"),
    "Y": Argument(lambda: _data()[1], "array"),
    "Xnew": Argument(lambda: _data()[0], "new inputs"),
    "data": Argument(_data, "array"),
    "kernel": Argument(_kernel, "part"),
    "likelihood": Argument(_likelihood, "part"),
    "layers": Argument(_layers, "part"),
    "mean_function": Argument(gpflow.mean_functions.Zero, "part"),
    "inducing_variable": Argument(lambda: _data()[0][:3], "array"),
    "inducing_inputs": Argument(lambda: _data()[0][:3], "array"),
    "kernel_factory": Argument(_kernel, "part"),
    "networks": Argument(None, "part"),
    "network": Argument(None, "part"),
    "latents": Argument(None, "part"),
    "posterior": Argument(None, "part"),
    "pseudo_outputs": Argument(None, "array"),
    "active_dims": Argument(None, "anything"),
    "name": Argument(None, "anything"),
    "validate_args": Argument(None, "anything"),
    "optimizer": Argument(None, "part"),
    "validation_data": Argument(None, "array"),
    "checkpoint_dir": Argument(None, "anything"),
    "progress": Argument(None, "anything"),
    "callback": Argument(None, "part"),
    "monitor": Argument(None, "part"),
    "augmentation": Argument(None, "part"),
    **_one(2, "input_dim", "num_maps", "num_networks", "num_latent_gps", "num_outputs", "size"),
    **_one(2, "num_samples", "num_prediction_samples", "num_sites", "num_positions", "stride"),
    **_one(3, "num_inducing", "kernel_size", "num_rows", "num_inputs", "num_layers"),
    **_one(1, "output_dim", "repeats", "num_groups", "num_features", "latent_dim", "num_targets"),
    **_one(2, "num_importance_samples"),
    **_one(12, "num_data"),
    **_one(4, "fan_in", "num_chains", "num_kept", "keep_every", "burn_in", "window"),
    **_one(0.5, "step_size", kind="positive"),
    **_one(0.5, "momentum_decay", "burn_in_share", kind="share or none"),
    **_one("variational", "observation_term", kind="choice"),
    **_one((2,), "hidden_dims", "hidden"),
    **_one([2, 3, 2], "dims"),
    **_one(0, "seed", kind="seed"),
    **_one(0.5, "hidden_scale", "initial_scale", "scale", kind="positive"),
    **_one(0.5, "noise_variance", "white_noise", "max_kl", kind="positive"),
    **_one(0.5, "covariance_jitter", "epsilon", "jitter", "kl_weight", kind="not negative"),
    **_one(0.5, "damping", "gamma", "mean_gamma", kind="share"),
    **_one(1.0, "alpha", kind="share or none"),
    **_one(True, "predictive_objective", kind="weight"),
    **_one(False, "whiten", "full_covariance", "bias", "observe_mean", kind="flag"),
    **_one(False, "local_reparameterisation", "from_tied_factor", kind="flag"),
    # Truth values, as in GPflow.
    **{name: Argument(None, "anything") for name in ("full_cov", "full_output_cov")},
    **_one("marginal", "estimator", kind="choice"),
    **_one("global", "inducing", kind="choice"),
    **_one("greedy", "inducing_init", kind="choice"),
    **_one("analytic", "marginalisation", kind="choice"),
    **_one("AR1", "amortization", kind="choice"),
    **_one("float32", "compute_dtype", kind="choice"),
    **_one("joint", "inference", kind="choice"),
    **_one("same", "padding", kind="choice"),
    **_one("neal", "prior", kind="choice"),
    **_one("shared", "precision", kind="choice"),
    **_one("relu", "function", kind="choice"),
    **_one("tensor", "precompute_cache", kind="choice"),
    **_one(np.tri(3), "pattern", kind="array"),
    **_one(gd.posteriors.WeightSpec(2, 3, 4), "spec", kind="part"),
}


def _arguments(
    function: Callable[..., Any], own: Mapping[str, Argument] | None = None
) -> dict[str, Argument]:
    """What a callable's signature names, at values that are right."""
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    known = {**COMMON, **(own or {})}
    missing = set(names) - set(known)
    if missing:
        raise KeyError(f"no values for {missing} of {function}")
    return {name: known[name] for name in names if known[name].kind != "anything"}


def _fit(X: Any, Y: Any, **arguments: Any) -> Any:
    inputs, _ = _data()
    model = gpflow.models.SVGP(gpflow.kernels.SquaredExponential(), _likelihood(), inputs[:4])
    options = {"steps": 1, "progress": False, **arguments}
    return training.fit(model, (X, Y), **options).history["loss"]


def _regressor(**arguments: Any) -> Any:
    X, Y = _data()
    return DeepGPRegressor(**arguments).fit(X, Y[:, 0]).predict(X)


def _read_files(**arguments: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_text("x,y\n" + "1.0,2.0\n" * 12)
        return training.read_files(path, ["y"], **arguments).first


def _settings(**arguments: Any) -> Any:
    return list(Settings(**arguments).identity().values())


_POSITIVE_INTEGERS = ("num_layers", "num_inducing", "num_samples", "steps", "batch_size")
_POSITIVE_INTEGERS += ("decay_steps", "validate_every", "patience", "test_samples")

#: What is more than a constructor or function of the lists of names.
_COMPOSED: dict[str, tuple[Callable[..., Any], dict[str, Argument]]] = {
    "Settings": (
        _settings,
        {
            **_one(3, *_POSITIVE_INTEGERS, kind="size"),
            **_one(3, "hidden_dim", kind="size or zero"),
            **_one(0.5, "likelihood_variance", "learning_rate", "hidden_scale", kind="positive"),
            **_one(0.5, "noise_floor", kind="positive"),
            **_one(0.5, "decay_rate", kind="share"),
            **_one(0.5, "natural_gradient", "validation_fraction", kind="share or none"),
            **_one("rbf", "kernel", kind="choice"),
            **_one("float32", "compute_dtype", kind="choice"),
            **_one("gaussian", "likelihood", kind="choice"),
        },
    ),
    "training.read_files": (_read_files, _one(12, "num_data", "buffer_size")),
    "training.fit": (
        _fit,
        {
            "X": COMMON["X"],
            "Y": COMMON["Y"],
            **_one(1, "steps", "decay_steps", "validate_every", "checkpoint_every"),
            **_one(4, "batch_size", "patience"),
            **_one(0, "seed", kind="seed"),
            **_one(0.5, "learning_rate", kind="positive"),
            **_one(0.5, "decay_rate", "natural_gradient", "validation_fraction", kind="share"),
            **{
                name: Argument(None, "part")
                for name in ("optimizer", "callback", "monitor", "augmentation")
            },
        },
    ),
    # Of data and seeds it speaks in scikit-learn's words, which scikit-learn's own checks are about.
    "DeepGPRegressor": (
        _regressor,
        {
            **_one("svgp", "model", kind="choice"),
            **_one(4, "num_inducing", "num_layers"),
            **_one(1, "steps"),
            **_one(0.5, "time_limit", "jitter", kind="positive"),
            **_one(0.1, "validation_fraction", kind="share or none"),
        },
    ),
}

_OF_PREDICTIONS = {
    "X": Argument(lambda: _data()[0], "points"),
    "seed": Argument(None, "seed"),
    "noise": Argument(None, "draws"),
}

#: Arguments that mean something else than elsewhere, by room and name.
_OWN: dict[str, dict[str, Argument]] = {
    "models.DeepGP": {"num_sites": Argument(None, "count")},
    "models.AmortizedDeepGP": {"layers": Argument(_amortized_layers, "part")},
    "models.GlobalInducingBNN": {
        "layers": Argument(_network, "part"),
        "inducing_inputs": Argument(lambda: _data()[0][:3], "images"),
        "input_shape": Argument(None, "anything"),
    },
    "posteriors.Orthogonal": _one(2, "num_inducing"),
    "posteriors.DeepGPPosterior": {"model": Argument(lambda: _model(), "part")},
    "models.LatentVariableDeepGP": {"layers": Argument(_layers_of_latents, "part")},
    "models.OrthogonalSVGP": {
        "orthogonal_inducing_variable": Argument(lambda: _data()[0][3:6], "array")
    },
    "models.collapsed_evidence": {
        "layer": Argument(lambda: gd.layers.build_layers(_data()[0], (), num_inducing=3)[0], "part")
    },
    "models.StackedDeepGP": {"parts": Argument(lambda: [_model()], "part")},
    "kernels.SpectralMixture": {
        "weights": Argument(lambda: [0.5], "array"),
        "frequencies": Argument(lambda: [[0.5, 0.1]], "array"),
        "bandwidths": Argument(lambda: [[0.5, 0.1]], "array"),
    },
    "kernels.StackedStationary": {
        "kernel": Argument(lambda: gpflow.kernels.Matern52, "part"),
        **_one(0.5, "variance", "lengthscales", kind="positive"),
    },
    "optimizers.StochasticEP": {"model": Argument(_fitc, "part")},
    "optimizers.ExpectationPropagation": {"model": Argument(_fitc, "part")},
    "layers.bayesian.Residual": {
        "layers": Argument(lambda: [gd.layers.BayesianDense(2)], "part"),
        "shortcut": Argument(lambda: [], "part"),
    },
    "distributions.Bartlett": _one(5.0, "df", kind="degrees"),
    "distributions.InverseWishart": {
        **_one(5.0, "df", kind="degrees"),
        "scale_tril": Argument(lambda: np.eye(2), "array"),
    },
    "training.Stream": {
        "source": Argument(lambda: lambda: iter([_data()]), "part"),
        **_one(12, "buffer_size"),
    },
    "training.Tempering": {**_one(10, "steps"), **_one(0.1, "start", kind="share")},
    "training.minibatches": {
        "batch_size": Argument(lambda: 4, "count"),
        **_one(0, "start", kind="seed"),
    },
}

#: Named tuples of results, errors, bases to inherit from, and what takes tensors inside a model's graph.
NOT_CALLED = {
    "layers": {"Layer", "LocalPosterior", "Projection", "bayesian"},
    "layers.bayesian": {
        "BayesianLayer",
        "NetworkLayer",
        "WeightPrior",
        "connect",
        "random_layers",
        "walk",
    },
    "posteriors": {
        "Conditional",
        "InducingPosterior",
        "LatentPosterior",
        "Latents",
        "LayerPosterior",
        "Recursion",
        "WeightPosterior",
        "WeightSpec",
    },
    "models": {"DeepGPModel", "Convergence", "FunctionDraws", "LayerMoments", "LayerOutput"},
    "likelihoods": {"log_normaliser", "log_prob", "predict_log_density", "predict_mean_and_var"},
    "optimizers": {"NoUTurnSamples", "sample_no_u_turn"},
    "training": {"FitResult", "TrainingError", "fit", "read_files"},
    "presets": {
        "Builder",
        "Preset",
        "Settings",
        "build",
        "get",
        "names",
        "recommended",
        "register",
        "scheduled",
    },
}
NOT_CALLED["likelihoods"] |= {"probit", "variational_expectations"}

ROOMS = (
    "layers",
    "layers.bayesian",
    "posteriors",
    "models",
    "likelihoods",
    "kernels",
    "optimizers",
)
ROOMS += ("training", "initialisation", "metrics", "distributions", "presets")

_METHODS = (
    "elbo",
    "predict_f",
    "predict_y",
    "predict_log_density",
    "predict_f_samples",
    "posterior",
)
_METHODS += ("predict_f_mixture", "sample_prior", "sample_functions", "draw_noise")


def module(room: str) -> Any:
    """A part of the package by its name."""
    found = gd
    for part in room.split("."):
        found = getattr(found, part)
    return found


def _everything() -> dict[str, tuple[Callable[..., Any], dict[str, Argument]]]:
    found = dict(_COMPOSED)
    for room in ROOMS:
        for name in module(room).__all__:
            function, own = getattr(module(room), name), _OWN.get(f"{room}.{name}", {})
            known = any(function is other for other, _ in found.values())
            if known or name in NOT_CALLED.get(room, ()):
                continue
            if room == "metrics":
                probabilities = "probabilities" in inspect.signature(function).parameters
                own = _classes() if probabilities or "auroc" in name else _mixture()
                own = {**own, "mean": Argument(lambda: _data()[1], "array")}
            found[f"{room}.{name}"] = function, _arguments(function, own)
    for name in _METHODS:
        method = getattr(_model(), name)
        own = {"seed": Argument(None, "seed")} if name == "draw_noise" else _OF_PREDICTIONS
        found[f"DeepGP.{name}"] = method, _arguments(method, own)
    condense = _model().posterior().condense
    sizes = _one(2, "num_components", "num_reference", "steps")
    found["DeepGPPosterior.condense"] = condense, _arguments(condense, sizes)
    return found


CALLS = _everything()
