"""One random deep GP in two guises: for brute force, and for the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np

import gpflow_deep as gd
from tests import brute_force as bf

__all__ = [
    "M",
    "Problem",
    "STRUCTURES",
    "WIDTHS",
    "block_pattern",
    "expand",
    "make_posterior",
    "make_problem",
]

M = 4
STRUCTURES = ["mean-field", "fully-coupled", "stripes-and-arrow", "custom"]
WIDTHS = [
    (1,),
    (2,),
    (2, 1),
    (3, 2, 4),
    (2, 3, 2),
    (2, 1, 2, 1),
    (2, 2, 2, 2, 1),
    (1, 2, 1, 2, 1, 2),
]
PosteriorFactory = Callable[[list[gd.layers.GPLayer]], Any]


def block_pattern(structure: str, widths: Sequence[int], seed: int = 0) -> np.ndarray:
    """The block pattern [T, T] of a structure, written down by its definition."""
    T = sum(widths)
    if structure == "mean-field":
        return np.eye(T, dtype=bool)
    if structure == "fully-coupled":
        return np.tri(T, dtype=bool)
    if structure == "stripes-and-arrow":
        return bf.star_pattern(list(widths))
    random = np.random.default_rng(seed).random((T, T)) < 0.5
    return np.tril(random, -1) | np.eye(T, dtype=bool)


def make_posterior(structure: str, pattern: np.ndarray) -> PosteriorFactory:
    fast: dict[str, PosteriorFactory] = {
        "mean-field": gd.posteriors.MeanField,
        "fully-coupled": gd.posteriors.FullyCoupled,
        "stripes-and-arrow": gd.posteriors.StripesAndArrow,
    }
    return fast.get(
        structure, lambda layers: gd.posteriors.BlockStructured(layers, pattern=pattern)
    )


def expand(pattern: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The pattern's blocks as entries: a GP's row and column become as many as it has points."""
    return np.repeat(np.repeat(pattern, sizes, axis=0), sizes, axis=1)


def random_q(
    pattern: np.ndarray, sizes: Sequence[int], seed: int, scale: float = 0.4
) -> tuple[np.ndarray, np.ndarray]:
    """A random mean and lower-triangular factor of a pattern; `sizes`: each GP's points."""
    rng = np.random.default_rng(seed)
    size = sum(sizes)
    factor = np.tril(scale * rng.standard_normal((size, size)), -1)
    factor += np.diag(rng.uniform(0.3, 1.0, size))
    return rng.standard_normal(size), factor * expand(pattern, sizes)


def _kernel(layer: bf.Layer) -> gpflow.kernels.Kernel:
    kernel = gpflow.kernels.SquaredExponential(layer.variance, layer.lengthscales)
    return kernel + gpflow.kernels.White(layer.white) if layer.white > 0 else kernel


@dataclass(frozen=True)
class Problem:
    """The same deep GP for brute force and for the package."""

    layers: list[bf.Layer]
    X: np.ndarray
    Y: np.ndarray
    whiten: bool
    mean: np.ndarray
    factor: np.ndarray
    noise_variance: float = 0.3
    num_data: int = 10

    @property
    def jitter(self) -> float:
        return gpflow.config.default_jitter()

    @property
    def q_u(self) -> tuple[np.ndarray, np.ndarray]:
        if self.whiten:
            return bf.unwhiten(self.layers, self.mean, self.factor, self.jitter)
        return self.mean, self.factor

    def gp_layers(self) -> list[gd.layers.GPLayer]:
        layers = []
        for layer in self.layers:
            inducing_variable: Any = layer.Z.copy()
            if np.ndim(layer.variance) == 0:
                kernel = _kernel(layer)
            else:
                kernel = gpflow.kernels.SeparateIndependent(
                    [_kernel(layer.gp(t)) for t in range(layer.num_gps)]
                )
                inducing_variable = gpflow.inducing_variables.SharedIndependentInducingVariables(
                    gpflow.inducing_variables.InducingPoints(inducing_variable)
                )
            layers.append(
                gd.layers.GPLayer(
                    kernel,
                    inducing_variable,
                    layer.num_gps,
                    mean_function=gpflow.functions.Linear(A=layer.W, b=layer.b),
                    whiten=self.whiten,
                )
            )
        return layers

    def model(self, posterior: Any, **settings: Any) -> gd.models.DeepGP:
        """A deep GP with this problem's q: a posterior class, or a function of the layers."""
        layers = self.gp_layers()
        settings = {"num_samples": 2, "covariance_jitter": 0.0, **settings}
        model = gd.models.DeepGP(
            layers,
            gpflow.likelihoods.Gaussian(self.noise_variance),
            posterior=posterior if isinstance(posterior, type) else posterior(layers),
            num_data=self.num_data,
            **settings,
        )
        model.inducing_posterior.assign_dense(self.mean, self.factor)
        return model

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return self.X, self.Y

    def noise(self, num_samples: int = 2, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [
            rng.standard_normal((num_samples, len(self.X), layer.num_gps)) for layer in self.layers
        ]


def make_problem(
    widths: Sequence[int],
    pattern: np.ndarray,
    *,
    whiten: bool = True,
    input_dim: int = 2,
    num_points: int = 3,
    seed: int = 0,
    num_inducing: Sequence[int] | None = None,
    separate_kernels: bool = False,
) -> Problem:
    num_inducing = num_inducing or [M] * len(widths)
    rng = np.random.default_rng(seed)
    layers = []
    for D, T, points in zip([input_dim, *widths[:-1]], widths, num_inducing, strict=True):
        layers.append(
            bf.Layer(
                Z=rng.standard_normal((points, D)),
                variance=rng.uniform(0.5, 1.5, T if separate_kernels else None),
                lengthscales=rng.uniform(0.7, 1.5, (T, D) if separate_kernels else D),
                white=0.01 if len(layers) + 1 < len(widths) else 0.0,
                W=0.5 * rng.standard_normal((D, T)),
                b=0.1 * rng.standard_normal(T),
            )
        )
    return Problem(
        layers=layers,
        X=rng.standard_normal((num_points, input_dim)),
        Y=rng.standard_normal((num_points, widths[-1])),
        whiten=whiten,
        **dict(
            zip(
                ("mean", "factor"),
                random_q(pattern, np.repeat(num_inducing, widths), seed + 1),
                strict=True,
            )
        ),
    )
