"""Small models, cheap to compile, that the tests of training fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.utilities import read_values

from gpflow_deep.models import DeepGP
from gpflow_deep.training import FitResult, fit

N, D, M = 60, 2, 8


def make_data(num_rows: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(num_rows, D))
    return X, np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(num_rows, 1))


class CountingSVGP(gpflow.models.SVGP):
    """Counts how often Python builds its objective: a step that is compiled once builds it once."""

    num_traces = 0

    def elbo(self, data: Any) -> tf.Tensor:
        self.num_traces += 1
        return super().elbo(data)


def make_svgp(model_class: type = gpflow.models.SVGP, **kwargs: Any) -> gpflow.models.SVGP:
    X, _ = make_data()
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(D))
    kwargs = {"likelihood": gpflow.likelihoods.Gaussian(0.1), "num_data": N, **kwargs}
    return model_class(kernel, inducing_variable=X[:M].copy(), **kwargs)


#: By which a bound of a user's own is below ours.
TERM = 64.0


class WithTerm(DeepGP):
    """With a bound of the signature that GPflow's models have, which knows of no draws."""

    def elbo(self, data: Any) -> tf.Tensor:
        return super().elbo(data) - TERM


class Line(gpflow.models.BayesianModel, gpflow.models.ExternalDataTrainingLossMixin):
    """
    A straight line with a random objective, as deep GPs have, and failures on demand.

    `failure` is applied to the loss of step number `fails_at` (from 0).
    """

    def __init__(
        self,
        fails_at: int = -1,
        failure: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = lambda loss, slope: loss,
    ) -> None:
        super().__init__()
        self.slope = gpflow.Parameter([0.5])
        self.intercept = gpflow.Parameter([0.0])
        self.unused = gpflow.Parameter([3.0])
        self.num_data: int | None = None
        self.seen_num_data: list[int | None] = []
        self._fails_at = fails_at
        self._failure = failure

    def draw_noise(self, num_data: int, num_samples: Any = None, seed: Any = None) -> Any:
        return seed, tf.random.stateless_normal([num_data], seed, dtype=gpflow.default_float())

    def elbo(self, data: Any, noise: Any) -> tf.Tensor:
        (X, Y), (seed, draws) = data, noise
        self.seen_num_data.append(self.num_data)
        errors = Y[:, 0] - X[:, 0] * self.slope - self.intercept - 0.1 * draws
        objective = -tf.reduce_sum(errors**2)
        return tf.cond(
            tf.equal(seed[1], self._fails_at),
            lambda: self._failure(objective, self.slope.unconstrained_variable),
            lambda: objective,
        )

    def maximum_log_likelihood_objective(self, data: Any, noise: Any = None) -> tf.Tensor:
        return self.elbo(data, noise or self.draw_noise(data[0].shape[0], seed=[0, 0]))

    def predict_f(self, Xnew: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean = Xnew[:, :1] * self.slope + self.intercept
        return mean, tf.ones_like(mean)

    def predict_log_density(self, data: Any) -> tf.Tensor:
        X, Y = data
        return -0.5 * (Y - self.predict_f(X)[0])[:, 0] ** 2


class Weights(gpflow.models.BayesianModel, gpflow.models.ExternalDataTrainingLossMixin):
    """Bayesian linear regression: q_mu and q_sqrt as an SVGP has them, at a small cost."""

    def __init__(self) -> None:
        super().__init__()
        self.q_mu = gpflow.Parameter(np.zeros((D, 1)))
        self.q_sqrt = gpflow.Parameter(np.eye(D)[None], transform=gpflow.utilities.triangular())
        self.log_noise = gpflow.Parameter(0.0)

    def maximum_log_likelihood_objective(self, data: Any) -> tf.Tensor:
        X, Y = data
        mean, variance = self.predict_f(X)
        error = (Y - mean) ** 2 + variance
        fit = -0.5 * tf.reduce_mean(error * tf.exp(-self.log_noise) + self.log_noise)
        return N * fit - gpflow.kullback_leiblers.gauss_kl(self.q_mu, self.q_sqrt)

    def predict_f(self, Xnew: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        spread = tf.matmul(Xnew, self.q_sqrt[0])
        return tf.matmul(Xnew, self.q_mu), tf.reduce_sum(spread**2, axis=1, keepdims=True)

    def predict_log_density(self, data: Any) -> tf.Tensor:
        X, Y = data
        mean, variance = self.predict_f(X)
        variance += tf.exp(self.log_noise)
        return gpflow.logdensities.gaussian(Y, mean, variance)[:, 0]


def assert_same(left: tf.Module, right: tf.Module) -> None:
    left_values, right_values = read_values(left), read_values(right)
    assert left_values.keys() == right_values.keys()
    for path, value in left_values.items():
        np.testing.assert_array_equal(value, right_values[path], err_msg=path)


def quiet_fit(model: Any, data: Any = None, **kwargs: Any) -> FitResult:
    kwargs = {"steps": 12, "batch_size": 16, "progress": False, **kwargs}
    return fit(model, make_data() if data is None else data, **kwargs)


class Killed(Exception):
    """What ends a run that is to be resumed."""


def kill_at(step_killed: int) -> Callable[[int, float], None]:
    def callback(step: int, loss: float) -> None:
        if step == step_killed:
            raise Killed

    return callback
