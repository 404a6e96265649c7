"""
Global inducing deep GPs against the reference values, through the public interface.

The reference draws the inducing outputs by the same rule: the prior's draw moved by its misfit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.numerics.draws import standard_normals
from gpflow_deep.numerics.linalg import rows_times

_GOLDEN = np.load(Path(__file__).parent / "global_inducing" / "golden.npz")
CASES = [str(name) for name in _GOLDEN["case_names"] if str(_GOLDEN[f"{name}/type"][()]) == "dgp"]
ESTIMATORS = {"monte_carlo": "elbo", "analytic_kl": "elbo_klana", "marginal": "elbo_marg"}
PRECISIONS = {"shared_diag": "shared", "channel_diag": "separate", "shared_full": "full"}
WITH_GRADIENTS = [name for name in CASES if f"{name}/grad/elbo/U0" in _GOLDEN]


class Case:
    """One case by the names of its arrays; layers count from 1."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.depth = int(self["depth"])
        # The reference has what `rtol` its covariances allow.
        worst = max(self[f"two_noise/L{i}/condK"].max() for i in range(1, self.depth + 1))
        self.rtol = 1e-8 if worst < 1e5 else 1e-6

    def __getitem__(self, key: str) -> Any:
        value = _GOLDEN[f"{self.name}/{key}"]
        return value if value.shape else value.item()

    def __contains__(self, key: str) -> bool:
        return f"{self.name}/{key}" in _GOLDEN

    def noise(self) -> list[np.ndarray]:
        layers = range(1, self.depth + 1)
        draws = [self[f"L{i}/eps_f"] for i in layers]
        for i in layers:
            prior, pseudo = (np.swapaxes(self[f"L{i}/{x}"], 1, 2) for x in ("eps_k", "eps_lam"))
            if self["lam_kind"] == "shared_full":
                # The model has the triangular root of the precision, the reference another one: Q takes the
                # reference's draws to the model's.
                root = self[f"L{i}/lam"]
                pseudo = pseudo @ np.linalg.solve(np.linalg.cholesky(root @ root.T), root).T
            draws += [prior, pseudo]
        return draws


@cache
def _case(name: str) -> Case:
    return Case(name)


def _layer(case: Case, i: int) -> gd.layers.GPLayer:
    kernel = gpflow.kernels.SquaredExponential(
        variance=case[f"L{i}/variance"], lengthscales=case[f"L{i}/lengthscales"]
    )
    if case["jitter_kind"] == "orig":  # on K_MM and on the variances, never on K_MN
        kernel = kernel + gpflow.kernels.White(case[f"L{i}/jitter_uu"])
    mean = None
    if f"L{i}/A" in case:
        mean = gpflow.functions.Linear(A=case[f"L{i}/A"], b=case[f"L{i}/b"])
    Z = case[f"L{i}/Z"] if case["local"] else None
    return gd.layers.GPLayer(kernel, Z, case[f"L{i}/V"].shape[1], mean)


def _model(case: Case, estimator: str = "marginal") -> gd.models.GlobalInducingDeepGP:
    layers = [_layer(case, i) for i in range(1, case.depth + 1)]
    model = gd.models.GlobalInducingDeepGP(
        layers,
        gpflow.likelihoods.Gaussian(case["noise_var"]),
        None if case["local"] else case["U0"],
        inducing="local" if case["local"] else "global",
        posterior=partial(
            gd.posteriors.PseudoObservations,
            precision=PRECISIONS[case["lam_kind"]],
            observe_mean=bool(case["v_total"]),
        ),
        estimator=estimator,
        num_samples=case["S"],
        num_data=int(case["num_data"]),
    )
    for i, q in enumerate(model.inducing_posteriors, start=1):
        q.assign_pseudo_outputs(case[f"L{i}/V"])
        root = case[f"L{i}/lam"]
        q.assign_precision(root @ root.T if q.precision == "full" else root)
    return model


@pytest.fixture(name="case", params=CASES)
def _fixture(request: pytest.FixtureRequest) -> Iterator[Case]:
    case = _case(request.param)
    if case["jitter_kind"] != "gpflow":
        gpflow.config.set_default_jitter(0.0)
    yield case


def test_draws_and_their_conditionals(case: Case) -> None:
    model = _model(case)
    outputs = model.propagate(case["X"], noise=case.noise())
    for i, output in enumerate(outputs, start=1):
        expected = [case[f"two_noise/L{i}/{name}"] for name in ("F", "f_mean", "f_var")]
        expected[2] = np.broadcast_to(expected[2][..., None], output.covariance.shape)
        if case["jitter_kind"] == "none":  # the variances are zero there, but for rounding
            np.testing.assert_allclose(output.mean, expected[1], rtol=case.rtol)
            np.testing.assert_allclose(output.covariance, 0.0, atol=1e-12)
            continue
        for actual, value in zip(output, expected, strict=True):
            np.testing.assert_allclose(actual, value, rtol=case.rtol, atol=case.rtol)


def test_divergences(case: Case) -> None:
    """Of every layer: the log ratio of densities at the draws, and its expectation."""
    model = _model(case)
    chain = model._propagate_inducing(case.noise()[case.depth :])
    S = case["S"]
    for i, (q, v) in enumerate(zip(chain.conditionals, chain.draws, strict=True), start=1):
        ratio, kl = case[f"two_noise/L{i}/logPQ"], case[f"two_noise/L{i}/kl"]
        np.testing.assert_allclose(q.log_ratio(v), ratio, rtol=case.rtol, atol=case.rtol)
        np.testing.assert_allclose(np.broadcast_to(q.prior_kl(), S), kl, rtol=case.rtol)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_objectives(case: Case, estimator: str) -> None:
    model = _model(case, estimator)
    noise = case.noise()
    points, inducing = noise[: case.depth], noise[case.depth :]
    if estimator == "marginal":
        points, inducing = points[:-1], inducing[:-2]
    value = model.elbo((case["X"], case["Y"]), noise=points + inducing)
    # With no jitter at all the square root of a zero variance has half of the digits.
    tolerance = 1e-6 if case["jitter_kind"] == "none" else case.rtol
    np.testing.assert_allclose(
        value, np.mean(case[f"two_noise/{ESTIMATORS[estimator]}"]), rtol=tolerance
    )


@pytest.mark.parametrize("seed", range(3))
def test_best_posterior_of_one_layer_gives_the_evidence(seed: int) -> None:
    """Without noise in the estimate: for every draw."""
    case = _case("gp1_optimal")
    gpflow.config.set_default_jitter(0.0)
    model = _model(case, "monte_carlo")
    exact = case["exact_log_marginal"]
    chain = model._propagate_inducing(standard_normals([[3, 1, 9]] * 2, [seed, 0]))
    U = rows_times(chain.draws[0], chain.conditionals[0].prior_factor, transpose=True)
    densities = model.likelihood.log_prob(case["X"], tf.transpose(U, [0, 2, 1]), case["Y"])
    bound = tf.reduce_sum(densities, -1) + chain.conditionals[0].log_ratio(chain.draws[0])
    np.testing.assert_allclose(bound, np.full(3, exact), rtol=1e-9)
    marginal = _model(case, "marginal").elbo((case["X"], case["Y"]))
    np.testing.assert_allclose(marginal, exact, rtol=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients(name: str, estimator: str) -> None:
    case = _case(name)
    model = _model(case, estimator)
    noise = case.noise()
    if estimator == "marginal":
        noise = noise[: case.depth - 1] + noise[case.depth : -2]
    parameters = {
        "U0": model.layers[0].inducing_variable.Z,
        "log_noise_var": model.likelihood.variance,
    }
    for i, (layer, q) in enumerate(
        zip(model.layers, model.inducing_posteriors, strict=True), start=1
    ):
        parameters[f"L{i}/V"] = q.pseudo_outputs
        parameters[f"L{i}/log_lam"] = q.precision_diagonal
        parameters[f"L{i}/log_lengthscales"] = layer.kernel.lengthscales
        parameters[f"L{i}/log_variance"] = layer.kernel.variance
    variables = [p.unconstrained_variable for p in parameters.values()]
    with tf.GradientTape() as tape:
        value = model.elbo((case["X"], case["Y"]), noise=noise)
    slopes = tape.gradient(value, variables)
    for (key, parameter), slope in zip(parameters.items(), slopes, strict=True):
        expected = case[f"grad/{ESTIMATORS[estimator]}/{key}"]
        actual = tf.convert_to_tensor(slope)
        if "log_" in key:  # d log(theta) = (d theta / d x) / theta d x
            x = parameter.unconstrained_variable
            jacobian = tf.exp(parameter.transform.forward_log_det_jacobian(x, event_ndims=0))
            actual *= parameter / jacobian
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            np.reshape(actual, np.shape(expected)),
            expected,
            rtol=1e-6,
            atol=1e-6 * scale,
            err_msg=key,
        )
