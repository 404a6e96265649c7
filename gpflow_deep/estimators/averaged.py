"""A handful of rows: a linear function and GPs, averaged over what the rows leave open."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import gpflow
import numpy as np
from scipy.special import softmax

from gpflow_deep.presets import Settings, get
from gpflow_deep.presets.exact import ExactGP
from gpflow_deep.presets.registry import CONSTANT, LINEAR

from .calibration import Errors
from .constant import fit_constant
from .fitted import FittedModel
from .rows import Rows
from .selection import LEAST, Candidate, Mixed
from .trees import deadline_in

__all__ = ["AVERAGED", "Drawn", "Posterior", "average"]

#: The families that are drawn.
AVERAGED = (LINEAR, "gp")
_KERNELS = ("rbf", "matern52")  # rougher ones beside them gained nothing
_DRAWS, _ITERATIONS = 16, 60
_STARTS = 16  # times as many to start from
# Of logarithms, for standardised rows: mean and deviation. Lengthscales have those of the exact GP's prior;
# that of its noise does not believe that all is noise, as a handful of rows may be.
_NOISE, _VARIANCE, _SPREAD = (-2.5, 3.0), (0.0, 2.0), 1.0
_CLEAR = 1.001  # of the floor of the noise
_LEAST_SHARE = {np.float32: 1e-5, np.float64: 1e-10}  # of noise in a variance, to factorise by
_SHRINKAGES = 50  # of a bracket, after which a chain stays where it is


class Drawn(NamedTuple):
    """Hyperparameters."""

    kernel: str
    noise: float
    variance: float
    lengthscales: np.ndarray  # [D], of which a linear kernel has none


class Posterior:
    """
    That of kernel and hyperparameters: the evidence times log-normal priors.

    :param rows: standardised.
    :param kernels: alike before the rows are seen.
    :param noise_floor: the noise variance is not less.
    """

    def __init__(self, rows: Rows, kernels: Sequence[str], noise_floor: float) -> None:
        self.kernels = tuple(kernels)
        X, self._Y, self._weights = (array.astype(np.float64) for array in rows)
        D = X.shape[1]
        self._centre = np.array([_NOISE[0], _VARIANCE[0], *[np.log(2.0 * D)] * D])
        self._spread = np.array([_NOISE[1], _VARIANCE[1], *[_SPREAD] * D])
        self._apart = np.square(X[:, None] - X[None]).transpose(2, 0, 1).reshape(D, -1)
        self._products = X @ X.T / D
        # Rows that are not standardised, as those of a warm start, may be far from the origin.
        size = max(1.0, float(np.mean(np.diag(self._products))))
        self._least = _CLEAR * noise_floor, size * _LEAST_SHARE[rows.X.dtype.type]

    def hyperparameters(self, values: np.ndarray, kernel: int) -> Drawn:
        """
        Of a point.

        :param values: standard normal before the rows are seen, [2 + D].
        :param kernel: its number.
        """
        noise, variance, scales = (array[0] for array in self._natural(values[None]))
        return Drawn(self.kernels[kernel], float(noise), float(variance), scales)

    def log_evidence(self, values: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        """
        That of S points, [S], but for a constant.

        :param values: standard normal before the rows are seen, [S, 2 + D].
        :param kernel: their numbers, [S].
        """
        noise, variances, scales = self._natural(values)
        N, P = self._Y.shape
        covariances = np.empty([len(values), N, N])
        for number, name in enumerate(self.kernels):
            own = kernel == number
            if name == LINEAR:
                covariances[own] = self._products
            else:
                squares = np.square(1.0 / scales[own]) @ self._apart
                covariances[own] = _CORRELATIONS[name](squares).reshape(-1, N, N)
        covariances *= variances[:, None, None]
        covariances[:, range(N), range(N)] += noise[:, None] / self._weights
        factors = np.linalg.cholesky(covariances)
        residuals = np.linalg.solve(factors, np.broadcast_to(self._Y, [len(values), N, P]))
        log_scales = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        # Observations beyond the first of a row say as much of the noise as any.
        repeats = 0.5 * np.sum(self._weights - 1.0) * np.log(noise)
        fit: np.ndarray = 0.5 * np.square(residuals).sum(axis=(1, 2))
        return -fit - P * (log_scales + repeats)

    def draw(self, number: int, rng: np.random.Generator, deadline: float = np.inf) -> list[Drawn]:
        """
        As many draws, the most probable first, each the end of a chain: of turns on ellipses through the
        point and a draw from the prior (elliptical slice sampling, Murray, Adams & MacKay 2010), after each
        of which the kernel is drawn. Chains start from draws from the prior, taken by their evidence.

        :param deadline: after which no turn begins.
        """
        size = _STARTS * number
        values = rng.normal(size=(size, len(self._centre)))
        kernel = np.arange(size) % len(self.kernels)
        found = self.log_evidence(values, kernel)
        taken = rng.choice(size, number, p=softmax(found))
        values, kernel, found = values[taken], kernel[taken], found[taken]
        for _ in range(_ITERATIONS):
            if time.perf_counter() > deadline:
                break
            values = self._turn(values, kernel, found, rng)
            each = np.stack(
                [self.log_evidence(values, np.full(number, k)) for k in range(len(self.kernels))]
            )
            kernel = np.argmax(each + rng.gumbel(size=each.shape), axis=0)
            found = each[kernel, np.arange(number)]
        return [
            self.hyperparameters(values[chain], kernel[chain])
            for chain in np.argsort(-found, kind="stable")
        ]

    def _turn(
        self, values: np.ndarray, kernel: np.ndarray, found: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Every chain a turn further."""
        other = rng.normal(size=values.shape)
        least = found + np.log(rng.uniform(size=len(found)))
        angle = rng.uniform(0.0, 2.0 * np.pi, len(found))
        low, high = angle - 2.0 * np.pi, angle.copy()
        turned, left = values.copy(), np.arange(len(found))
        for _ in range(_SHRINKAGES):
            cosine, sine = np.cos(angle[left])[:, None], np.sin(angle[left])[:, None]
            proposed = cosine * values[left] + sine * other[left]
            taken = self.log_evidence(proposed, kernel[left]) > least[left]
            turned[left[taken]] = proposed[taken]
            left = left[~taken]
            if not len(left):
                break
            below = angle[left] < 0.0
            low[left[below]], high[left[~below]] = angle[left[below]], angle[left[~below]]
            angle[left] = rng.uniform(low[left], high[left])
        return turned

    def _natural(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Variances of noise and function, both [S], and lengthscales [S, D]."""
        natural = np.exp(self._centre + self._spread * values)
        floor, share = self._least
        noise, variance = natural[:, 0], natural[:, 1]
        return np.maximum(noise, np.maximum(floor, share * variance)), variance, natural[:, 2:]


def average(
    rows: Rows,
    settings: Mapping[str, Settings],
    seed: int,
    seconds: float | None,
    tell: Callable[[str], None],
) -> Mixed:
    """
    Linear functions and GPs, each with hyperparameters of its own, drawn by how probable the rows make them:
    a handful of rows is explained in many ways, of which the most probable one, alone, is too sure. Half of
    the draws are of GPs in any case, which far from the rows return to the mean: what such rows take for
    linear often is not. A constant has a thousandth, as beside families that rows tell apart: next to a jump
    that the rows take for a slope all draws are sure, and wrong.

    :param rows: standardised.
    :param settings: of each family, and of the constant.
    :param seed: of the draws.
    :param seconds: not to be exceeded by much.
    :param tell: takes lines on what is being done.
    :return: the members, their weights, and what was tried.
    """
    started = time.perf_counter()
    own = settings["gp"].kernel
    kernels = _KERNELS if own == "own" else (own,)
    rng, drawn = np.random.default_rng(seed), []
    for choice in ((LINEAR, *kernels), kernels):
        posterior = Posterior(rows, choice, settings["gp"].noise_floor)
        drawn += posterior.draw(_DRAWS // 2, rng, deadline_in(seconds and seconds / 2))
    names = [LINEAR if one.kernel == LINEAR else "gp" for one in drawn]

    def fitted(name: str, chosen: Settings, model: ExactGP, errors: Errors | None) -> FittedModel:
        return FittedModel(
            name,
            chosen,
            seed,
            rows.X.shape[1],
            rows.Y.shape[1],
            np.dtype(gpflow.default_float()).name,
            gpflow.config.default_jitter(),
            model,
            errors=errors,
        )

    members = []
    for name, one in zip(names, drawn, strict=True):
        chosen = replace(settings[name], kernel="own" if name == LINEAR else one.kernel)
        members.append(fitted(name, chosen, _model(name, chosen, rows, one, seed), None))
    model, errors = fit_constant(rows, settings[CONSTANT], seed)
    members.append(fitted(CONSTANT, settings[CONSTANT], model, errors))
    seconds_each = (time.perf_counter() - started) / len(members)
    share = (1.0 - LEAST) / len(names)
    tried = []
    for name in AVERAGED:
        number = names.count(name)
        tried.append(Candidate(name, None, number * seconds_each, number * share))
        tell(f"{name}: {number} of {len(names)} draws.")
    tried.append(Candidate(CONSTANT, None, seconds_each, LEAST))
    for member in members:
        member.report |= {"rows": len(rows.X), "seconds": seconds_each}
    return members, np.array([*[share] * len(names), LEAST]), tried


def _model(name: str, settings: Settings, rows: Rows, drawn: Drawn, seed: int) -> ExactGP:
    model: ExactGP = get(name).build(rows.X, rows.Y, settings, seed)
    model.weights.assign(rows.weights)
    model.likelihood.variance.assign(drawn.noise)
    if name == LINEAR:
        model.kernel.variance.assign(drawn.variance / rows.X.shape[1])
    else:
        model.kernel.variance.assign(drawn.variance)
        model.kernel.lengthscales.assign(drawn.lengthscales)
    return model


def _rbf(squares: np.ndarray) -> np.ndarray:
    """Correlations at squared distances, in lengthscales."""
    return np.exp(-0.5 * squares)


def _matern12(squares: np.ndarray) -> np.ndarray:
    return np.exp(-np.sqrt(squares))


def _matern32(squares: np.ndarray) -> np.ndarray:
    distances = np.sqrt(3.0 * squares)
    return (1.0 + distances) * np.exp(-distances)


def _matern52(squares: np.ndarray) -> np.ndarray:
    distances = np.sqrt(5.0 * squares)
    return (1.0 + distances + np.square(distances) / 3.0) * np.exp(-distances)


_CORRELATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "rbf": _rbf,
    "matern12": _matern12,
    "matern32": _matern32,
    "matern52": _matern52,
}
