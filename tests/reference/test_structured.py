"""
Structured deep GPs against the reference values, through the public interface alone.

Every case is built with `BlockStructured` and its block pattern, and once more with the class that
is written for its structure, where there is one.
"""

from __future__ import annotations

from functools import cache

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from tests.reference.structured_cases import CASE_NAMES, Case, load_case

FAST = {
    "mf": gd.posteriors.MeanField,
    "fc": gd.posteriors.FullyCoupled,
    "star": gd.posteriors.StripesAndArrow,
}
VARIANTS = [(name, "dense") for name in CASE_NAMES]
VARIANTS += [(name, "fast") for name in CASE_NAMES if load_case(name).meta["structure"] in FAST]

EVERY_VARIANT = pytest.mark.parametrize(("name", "variant"), VARIANTS)
WITH_GRADIENTS = [(name, kind) for name, kind in VARIANTS if "grad_q_mu" in load_case(name)]


def _kernel(case: Case, i: int) -> gpflow.kernels.Kernel:
    kernel = gpflow.kernels.SquaredExponential(
        variance=case["kern_var"][i], lengthscales=case[f"kern_ls_{i}"]
    )
    white = case["white_var"][i]
    return kernel + gpflow.kernels.White(white) if white > 0 else kernel


def _mean_function(case: Case, i: int) -> gpflow.functions.MeanFunction:
    kind = case.meta["mf_kind"][i]
    if kind == "zero":
        return gpflow.functions.Zero(output_dim=case.meta["T"][i])
    if kind == "identity":
        return gpflow.functions.Identity()
    return gpflow.functions.Linear(A=case[f"mf_W_{i}"], b=case[f"mf_b_{i}"])


@cache
def _model(name: str, variant: str) -> gd.models.DeepGP:
    case = load_case(name)
    meta = case.meta
    assert gpflow.config.default_jitter() == meta["kuu_jitter"]
    layers = [
        gd.layers.GPLayer(
            _kernel(case, i),
            case[f"Z_{i}"].copy(),
            meta["T"][i],
            mean_function=_mean_function(case, i),
            whiten=meta["whitened"],
        )
        for i in range(meta["L"])
    ]
    if variant == "fast":
        posterior = FAST[meta["structure"]]
    else:
        posterior = gd.posteriors.BlockStructured(layers, pattern=case["block_mask"].astype(bool))
    model = gd.models.DeepGP(
        layers,
        gpflow.likelihoods.Gaussian(case["lik_var"]),
        posterior=posterior,
        num_samples=meta["S"],
        num_data=meta["num_data"],
        covariance_jitter=meta["cov_jitter"],
    )
    model.inducing_posterior.assign_dense(case["q_mu"], case["q_sqrt"])
    return model


@cache
def _moments(name: str, variant: str) -> list[gd.models.LayerOutput]:
    case = load_case(name)
    return _model(name, variant).propagate(case["X"], noise=case.per_layer("z"))


def _assert_equal(actual: tf.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


def _variance(case: Case, i: int) -> np.ndarray:
    return np.diagonal(case[f"Sigma_hat_{i}"], axis1=-2, axis2=-1)


@EVERY_VARIANT
def test_dense_is_what_was_assigned(name: str, variant: str) -> None:
    case = load_case(name)
    mean, scale_tril = _model(name, variant).inducing_posterior.dense()
    np.testing.assert_allclose(mean, case["q_mu"], rtol=1e-13, atol=0.0)
    np.testing.assert_allclose(scale_tril, case["q_sqrt"], rtol=1e-13, atol=1e-18)


@EVERY_VARIANT
def test_samples_and_conditional_moments(name: str, variant: str) -> None:
    case = load_case(name)
    for i, (sample, mean, covariance) in enumerate(_moments(name, variant)):
        _assert_equal(sample, case[f"f_{i}"])
        _assert_equal(mean, case[f"mu_hat_{i}"])
        if covariance.shape.rank == 3:  # a posterior under which the layer's GPs are independent
            full = case[f"Sigma_hat_{i}"]
            off_diagonal = full - full * np.eye(case.meta["T"][i])
            np.testing.assert_allclose(off_diagonal, 0.0, atol=1e-12)
            _assert_equal(covariance, _variance(case, i))
        else:
            _assert_equal(covariance, case[f"Sigma_hat_{i}"])


@EVERY_VARIANT
def test_expectations_and_log_densities(name: str, variant: str) -> None:
    """What the likelihood makes of the last layer's moments."""
    case, S = load_case(name), load_case(name).meta["S"]
    likelihood = _model(name, variant).likelihood
    _, mean, variance = _moments(name, variant)[-1]
    if variance.shape.rank == 4:
        variance = tf.linalg.diag_part(variance)
    X, Y = (np.tile(case[key], [S, 1, 1]) for key in ("X", "Y"))
    expectations = likelihood.variational_expectations(X, mean, variance, Y)
    _assert_equal(expectations, case["var_exp"].sum(-1))
    _assert_equal(tf.reduce_mean(expectations, 0), case["ell_n"])
    log_densities = likelihood.predict_log_density(X, mean, variance, Y)
    _assert_equal(tf.reduce_logsumexp(log_densities, 0) - np.log(S), case["pred_logdens"])


@EVERY_VARIANT
def test_objective(name: str, variant: str) -> None:
    case, model = load_case(name), _model(name, variant)
    _assert_equal(model.prior_kl(), case["KL"])
    _assert_equal(model.elbo((case["X"], case["Y"]), noise=case.per_layer("z")), case["ELBO"])


def _se(layer: gd.layers.GPLayer) -> gpflow.kernels.SquaredExponential:
    kernel = layer.kernel
    return kernel.kernels[0] if isinstance(kernel, gpflow.kernels.Sum) else kernel


@pytest.mark.parametrize(("name", "variant"), WITH_GRADIENTS)
def test_gradients(name: str, variant: str) -> None:
    """
    The reference holds derivatives with respect to constrained values. The map from the model's
    variables to those values carries them back to the variables: J^T g, exactly.
    """
    case, model = load_case(name), _model(name, variant)
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        objective = model.elbo((case["X"], case["Y"]), noise=case.per_layer("z"))
    actual = tape.gradient(objective, variables)

    with tf.GradientTape() as tape:
        values = [
            *model.inducing_posterior.dense(),
            tf.convert_to_tensor(model.likelihood.variance),
        ]
        references = [case["grad_q_mu"], case["grad_q_sqrt"], case["grad_lik_var"]]
        for i, layer in enumerate(model.layers):
            values += [
                tf.convert_to_tensor(layer.inducing_variable.Z),
                tf.convert_to_tensor(_se(layer).lengthscales),
                tf.convert_to_tensor(_se(layer).variance),
            ]
            references += [case[f"grad_{part}_{i}"] for part in ("Z", "kern_ls", "kern_var")]
    expected = tape.gradient(
        values, variables, output_gradients=[tf.convert_to_tensor(g) for g in references]
    )
    compared = 0
    for variable, gradient, reference in zip(variables, actual, expected, strict=True):
        if reference is None:  # white noise and mean functions have no reference
            continue
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), reference, rtol=1e-6, atol=1e-6, err_msg=variable.name
        )
        compared += 1
    assert compared > 3 * len(model.layers) + 2
