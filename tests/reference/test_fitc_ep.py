"""FITC-EP deep GPs against the reference values, through the public interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.likelihoods import probit
from gpflow_deep.psi_statistics import Gaussian, psi0, psi1, psi2
from tests.reference.fitc_ep_cases import Case, case_names, load_case

ENERGY_CASES = case_names("energy")
WITH_GRADIENTS = [name for name in ENERGY_CASES if "l0_dT1" in load_case(name)]


@contextmanager
def jitter(case: Case) -> Iterator[None]:
    before = gpflow.config.default_jitter()
    gpflow.config.set_default_jitter(case.meta["jitter"])
    try:
        yield
    finally:
        gpflow.config.set_default_jitter(before)


def make_layer(case: Case, i: int) -> gd.layers.GPLayer:
    """Every GP has its own kernel and inducing inputs, unless the case shares them."""
    Z = case[f"l{i}_Z"]
    variance = case[f"l{i}_variance"]
    kernels: list[gpflow.kernels.Kernel] = []
    for t in range(len(Z)):
        if f"l{i}_lengthscales" not in case:
            kernels.append(gpflow.kernels.Linear(variance[t].copy()))
        else:
            lengthscales = case[f"l{i}_lengthscales"][t].copy()
            kernels.append(gpflow.kernels.SquaredExponential(variance[t], lengthscales))
    if case.meta["share"]:
        return gd.layers.GPLayer(kernels[0], Z[0].copy(), len(Z))
    points = [gpflow.inducing_variables.InducingPoints(z.copy()) for z in Z]
    return gd.layers.GPLayer(
        gpflow.kernels.SeparateIndependent(kernels),
        gpflow.inducing_variables.SeparateIndependentInducingVariables(points),
        len(Z),
    )


@cache
def make_model(name: str) -> gd.models.FITCEPDeepGP:
    case = load_case(name)
    meta = case.meta
    kind = meta["lik"]
    with jitter(case):
        likelihood = {
            "gaussian": lambda: gpflow.likelihoods.Gaussian(float(case.per_layer("noise")[-1])),
            "probit": lambda: gpflow.likelihoods.Bernoulli(invlink=probit),
            "softmax": lambda: gpflow.likelihoods.Softmax(meta.get("Dout", 1)),
        }[kind]()
        model = gd.models.FITCEPDeepGP(
            [make_layer(case, i) for i in range(case.num_layers)],
            likelihood,
            alpha=meta.get("alpha", 1.0),
            num_data=meta["N"],
            full_covariance=meta["full"],
        )
    for i, noise in enumerate(case.per_layer("noise")[:-1]):
        model.noise_variances[i].assign(noise)
    for i in range(case.num_layers):
        model.inducing_posterior.assign_natural_parameters(i, case[f"l{i}_T1"], case[f"l{i}_T2"])
    return model


def data(case: Case) -> tuple[np.ndarray, np.ndarray]:
    single = case.meta["kind"] == "appC"
    X, Y = (case["x"][None], case["y"][None]) if single else (case["X"], case["Y"])
    if case.meta["lik"] == "probit":
        Y = (Y + 1.0) / 2.0
    return X, Y.reshape(len(Y), -1)


def assert_equal(actual: object, expected: np.ndarray, rtol: float = 1e-9) -> None:
    expected = np.asarray(expected)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def tolerance(case: Case) -> float:
    return 1e-7 if "linear" in case.meta.get("kernels", []) else 1e-9


def energy(case: Case, model: gd.models.FITCEPDeepGP) -> tf.Tensor:
    noise = case["eps"] if "eps" in case else None
    return model.energy(data(case), noise=noise)


@pytest.mark.parametrize("name", ENERGY_CASES)
def test_energy(name: str) -> None:
    case, model = load_case(name), make_model(name)
    with jitter(case):
        assert_equal(energy(case, model), case["F"])


@pytest.mark.parametrize("name", ENERGY_CASES)
def test_forward_moments(name: str) -> None:
    case, model = load_case(name), make_model(name)
    with jitter(case):
        outputs = model.propagate(case["X"], cavity=True)
        prediction = model.predict_f(case["Xs"], full_output_cov=case.meta["full"])
    has_noise = case.meta["lik"] == "gaussian" and case.meta["mode"] == "paper"
    noise = [float(n) for n in case.per_layer("noise")]
    rtol = tolerance(case)

    def covariance(value: tf.Tensor, extra: float) -> np.ndarray:
        value = np.asarray(value)
        if value.ndim == 2:
            value = value[..., None] * np.eye(value.shape[-1])
        return value + extra * np.eye(value.shape[-1])

    for i, output in enumerate(outputs):
        last = i == case.num_layers - 1
        extra = noise[-1] if last and has_noise else 0.0
        assert_equal(output.mean[0], case[f"l{i}_fwd_mean"], rtol)
        assert_equal(covariance(output.covariance[0], extra), case[f"l{i}_fwd_cov"], rtol)
    assert_equal(prediction[0], case["pred_mean"], rtol)
    extra = noise[-1] if has_noise else 0.0
    assert_equal(covariance(prediction[1], extra), case["pred_cov"], rtol)


def surrogate(case: Case, model: gd.models.FITCEPDeepGP) -> tf.Tensor:
    """A function whose gradient is, where the parameters are, the reference's of the energy."""
    total = tf.zeros([], tf.float64)
    for i, layer in enumerate(model.layers):
        q = model.inducing_posterior
        factor = tf.convert_to_tensor(q.precision_sqrt[i])
        linear = tf.linalg.matvec(factor, q.targets[i])
        total += tf.reduce_sum(case[f"l{i}_dT1"] * tf.matmul(factor, factor, transpose_b=True))
        total += tf.reduce_sum(case[f"l{i}_dT2"] * linear)
        shared = case.meta["share"]
        last = i == case.num_layers - 1
        if not last or case.meta["lik"] == "gaussian":
            noise = model.likelihood.variance if last else model.noise_variances[i]
            total += case[f"l{i}_dlognoise"] * tf.math.log(noise)
        for t in range(layer.num_latent_gps):
            kernel = layer.kernel if shared else layer.kernel.kernels[t]
            inducing = layer.inducing_variable
            points = inducing if shared else inducing.inducing_variables[t]
            total += tf.reduce_sum(case[f"l{i}_dZ"][t] * points.Z)
            log_variance = tf.math.log(kernel.variance)
            if case.meta["kernels"][i] == "linear":
                # The reference has the derivative for a common factor alone.
                total += case[f"l{i}_dlogvar"][t] * tf.reduce_mean(log_variance)
            else:
                total += case[f"l{i}_dlogvar"][t] * log_variance
                log_lengthscales = tf.math.log(kernel.lengthscales)
                total += tf.reduce_sum(case[f"l{i}_dlogls"][t] * log_lengthscales)
    return total


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients(name: str) -> None:
    case, model = load_case(name), make_model(name)
    linear = [
        layer.kernel.variance.unconstrained_variable
        for layer in model.layers
        if isinstance(layer.kernel, gpflow.kernels.Linear)
    ]
    with jitter(case), tf.GradientTape(persistent=True) as tape:
        value, expected = energy(case, model), surrogate(case, model)
    for variable in model.trainable_variables:
        actual = tf.convert_to_tensor(tape.gradient(value, variable))
        wanted = tf.convert_to_tensor(tape.gradient(expected, variable))
        if any(variable is v for v in linear):
            # d / d log of a common factor is the sum over the inputs of d / d log variance.
            slope = tf.sigmoid(variable)
            ratio = tf.convert_to_tensor(variable)
            ratio = tf.math.softplus(ratio) / slope
            actual, wanted = tf.reduce_sum(actual * ratio), tf.reduce_sum(wanted * ratio)
        assert_equal(actual, wanted, 1e-7 if "linear" in case.meta["kernels"] else 2e-9)


@pytest.mark.parametrize("name", case_names("psi"))
def test_psi_statistics(name: str) -> None:
    case = load_case(name)
    A = gpflow.kernels.SquaredExponential(case["A_variance"], case["A_lengthscales"])
    B = gpflow.kernels.SquaredExponential(case["B_variance"], case["B_lengthscales"])
    L = gpflow.kernels.Linear(case["L_variance"])
    ZA, ZB, mean = (tf.constant(case[key]) for key in ("ZA", "ZB", "mu"))
    for kind, covariance in (("full", case["S"]), ("diag", case["var"])):
        gaussian = Gaussian(mean, tf.constant(covariance))
        for letter, kernel in (("A", A), ("L", L)):
            assert_equal(psi0(kernel, gaussian), case[f"psi0_{letter}_{kind}"])
            assert_equal(psi1(kernel, ZA, gaussian), case[f"psi1_{letter}_{kind}"])
            assert_equal(psi2(kernel, ZA, kernel, ZA, gaussian), case[f"psi2_{letter}_{kind}"])
        assert_equal(psi2(A, ZA, B, ZB, gaussian), case[f"psi2_AB_{kind}"])
        assert_equal(psi2(A, ZA, L, ZA, gaussian), case[f"psi2_AL_{kind}"])


@pytest.mark.parametrize("name", case_names("appC"))
def test_stochastic_ep(name: str) -> None:
    """One step at one point: the new parameters of all layers' factors."""
    case, model = load_case(name), make_model(name)
    sep = gd.optimizers.StochasticEP(model, damping=case.meta["beta"])
    X, Y = data(case)
    for i, natural in enumerate(sep.propose((X, Y))):
        assert_equal(natural.precision, case[f"l{i}_T1_new"], 1e-8)
        assert_equal(natural.linear, case[f"l{i}_T2_new"], 1e-8)


def exact_model(case: Case, likelihood: gpflow.likelihoods.Likelihood) -> gd.models.FITCEPDeepGP:
    kernel = gpflow.kernels.SquaredExponential(case["variance"], case["lengthscales"])
    return gd.models.FITCEPDeepGP([gd.layers.GPLayer(kernel, case["Z"].copy(), 1)], likelihood)


def inducing_moments(model: gd.models.FITCEPDeepGP) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of u of a model of one GP."""
    K, (A, W) = model._prior_covariances()[0], model._prepare()[0]
    return (K @ tf.transpose(A)).numpy()[:, 0], (K - K @ W[0] @ K).numpy()


def test_exact_fitc() -> None:
    case = load_case("c24")
    data = case["X"], case["y"][:, None]
    model = exact_model(case, gpflow.likelihoods.Gaussian(float(case["noise"])))
    model.num_data = len(data[0])
    q = model.inducing_posterior
    q.assign_natural_parameters(0, case["T1_exact"], case["T2_exact"])
    mean, covariance = inducing_moments(model)
    assert_equal(mean, case["fitc_mean"], 1e-8)
    assert_equal(covariance, case["fitc_cov"], 1e-8)
    assert_equal(model.energy(data), case["F_tied_at_exact_q"], 1e-8)
    # One sweep of EP, with a factor for each point, is exact.
    ep = gd.optimizers.ExpectationPropagation(model, data)
    assert ep.sweep() == 0
    mean, covariance = inducing_moments(model)
    assert_equal(mean, case["fitc_mean"], 1e-7)
    assert_equal(covariance, case["fitc_cov"], 1e-7)
    assert_equal(ep.log_evidence(), case["fitc_lml"], 1e-8)


def test_probit_ep() -> None:
    case = load_case("c24")
    data = case["X"], (case["probit_y"][:, None] + 1.0) / 2.0
    model = exact_model(case, gpflow.likelihoods.Bernoulli(invlink=probit))
    ep = gd.optimizers.ExpectationPropagation(model, data)
    for _ in range(30):
        assert ep.sweep() == 0
    mean, covariance = inducing_moments(model)
    assert_equal(mean, case["probit_ep_mean"], 1e-6)
    assert_equal(covariance, case["probit_ep_cov"], 1e-6)
    assert_equal(ep.log_evidence(), case["probit_ep_energy"], 1e-7)


def test_one_point_and_identical_points() -> None:
    case = load_case("c24")
    model = exact_model(case, gpflow.likelihoods.Gaussian(float(case["noise"])))
    q, x, y = model.inducing_posterior, case["X"][:1], case["y"][:1, None]
    model.num_data = 1
    for T1, T2 in ((case["T1_exact"], case["T2_exact"]), (np.eye(7)[None], np.ones([1, 7]))):
        q.assign_natural_parameters(0, T1, T2)
        assert_equal(model.energy((x, y)), case["n1_lml"])
    # Nine times the same point: the exact factor is of rank one, up to what keeps it positive definite.
    model.num_data = 9
    q.assign_natural_parameters(0, case["ident_T1"] + 1e-9 * np.eye(7), case["ident_T2"])
    nine = np.repeat(x, 9, axis=0), np.repeat(y, 9, axis=0)
    assert_equal(model.energy(nine), case["ident_lml"], 1e-6)
