"""The evidence of one GP with a FITC prior, its inducing outputs integrated out."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.likelihoods import Gaussian

from ..layers import GPLayer
from ..layers.covariances import Kuf, prior_variance
from ..likelihoods.gaussian import noise_variance
from ..numerics.factorisations import cholesky
from ..validation import check_inputs, check_number, check_pair
from .checks import refuse_mixing

__all__ = ["collapsed_evidence"]


def collapsed_evidence(
    layer: GPLayer, likelihood: Gaussian, data: RegressionData, alpha: float = 1.0
) -> tf.Tensor:
    r"""
    The log evidence at the fixed point of power EP with a factor for each point (Bui, Yan & Turner 2017),

    .. math::
        \log N(y; m, Q + D) - \tfrac{1 - \alpha}{2 \alpha} \sum_n \log(1 + \alpha r_n / s), \quad
        D = diag(\alpha r + s), \; r = diag(K - Q),

    summed over the outputs: the FITC evidence for alpha 1, Titsias' bound for alpha 0. What EP and a
    one-layer :class:`FITCEPDeepGP` are to be held against.

    With the inducing inputs at all the data, every power is the evidence of the exact GP:

    >>> layer = gd.layers.GPLayer(gpflow.kernels.Matern32(), X, num_latent_gps=1)
    >>> likelihood = gpflow.likelihoods.Gaussian(0.1)
    >>> fitc = gd.models.collapsed_evidence(layer, likelihood, (X, Y), alpha=1.0)
    >>> exact = gpflow.models.GPR((X, Y), gpflow.kernels.Matern32(), likelihood=likelihood)
    >>> bool(np.isclose(fitc, exact.log_marginal_likelihood(), rtol=1e-3))
    True

    :param layer: its kernel, inducing inputs and mean function.
    :param likelihood: its variance is s, which may differ from point to point.
    :param data: inputs [N, D] and targets [N, T], a column for each of the layer's GPs.
    :param alpha: the power, from 0 to 1.
    :raises ValueError: where it is another number, the data do not fit the layer, or the layer mixes its GPs.
    """
    if not isinstance(layer, GPLayer):
        raise TypeError(f"layer: expected a GPLayer, got {layer!r}.")
    if not isinstance(likelihood, Gaussian):
        raise TypeError(f"likelihood: expected gpflow.likelihoods.Gaussian, got {likelihood!r}.")
    data = check_pair(data)
    alpha = check_number(alpha, "alpha", 0.0, 1.0)
    X, Y = (tf.constant(check_inputs(x, f"data[{i}]")) for i, x in enumerate(data))
    _check_fit(layer, X, Y)
    s = tf.transpose(noise_variance(likelihood, X))  # [1 or T, N]
    factor = layer.factorise()
    K = Kuf(layer.own_inducing_variable, layer.kernel, X)
    A = tf.linalg.triangular_solve(factor, tf.broadcast_to(K, [*factor.shape[:-1], len(X)]))
    r = tf.transpose(prior_variance(layer.kernel, X)) - tf.reduce_sum(tf.square(A), axis=-2)
    r = tf.maximum(tf.reshape(r, [-1, len(X)]), 0.0)  # [1 or T, N]
    A = tf.reshape(A, [-1, layer.num_inducing, len(X)])
    D = alpha * r + s
    scaled = A / tf.sqrt(D)[:, None, :]
    identity = tf.eye(layer.num_inducing, dtype=A.dtype)
    inner = identity + tf.matmul(scaled, scaled, transpose_b=True)
    root = cholesky(inner, "I + A D^-1 A^T", gpflow.utilities.parameter_dict(layer.kernel))
    error = tf.transpose(Y - layer.prior_mean(X))[..., None] / tf.sqrt(D)[..., None]  # [T, N, 1]
    explained = tf.linalg.triangular_solve(
        tf.broadcast_to(root, [len(error), *root.shape[1:]]), tf.matmul(scaled, error)
    )
    penalty = r / s if alpha == 0 else (1.0 - alpha) / alpha * tf.math.log1p(alpha * r / s)
    each = tf.math.log(2.0 * np.pi * D) + penalty + tf.square(error[..., 0])  # [T, N]
    log_determinant = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)), axis=-1)
    return -0.5 * (
        tf.reduce_sum(each)
        + tf.reduce_sum(log_determinant + tf.zeros_like(error[:, 0, 0]))
        - tf.reduce_sum(tf.square(explained))
    )


def _check_fit(layer: GPLayer, X: tf.Tensor, Y: tf.Tensor) -> None:
    refuse_mixing(layer, "layer")
    if layer.input_dim not in (None, X.shape[1]):
        raise ValueError(
            f"data[0]: expected [N, {layer.input_dim}] like the layer's inducing inputs, got {X.shape}."
        )
    if len(X) != len(Y):
        raise ValueError(f"data: expected as many inputs as targets, got {len(X)} and {len(Y)}.")
    if Y.shape[1] != layer.num_latent_gps:
        raise ValueError(
            f"data[1]: expected [N, {layer.num_latent_gps}], a column for each of the layer's GPs, got"
            f" {Y.shape}."
        )
