"""
One Adam step of other projects' deep GPs. They are optional development dependencies and may live in an
environment of their own: nothing here needs this package.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from harness import adam_step


def gpflux_step(
    dtype: str, X: Any, batch: tuple[Any, Any], o: argparse.Namespace
) -> Callable[[], object]:
    import gpflow
    import numpy as np
    import tensorflow as tf
    from gpflux.helpers import construct_basic_inducing_variables, construct_basic_kernel
    from gpflux.layers import GPLayer, LikelihoodLayer
    from gpflux.models import DeepGP

    tf.keras.backend.set_floatx(dtype)
    dims = [o.input_dim] + [o.width] * (o.layers - 1) + [1]
    layers = []
    for index, (d_in, d_out) in enumerate(zip(dims, dims[1:])):
        last = index == o.layers - 1
        kernel = construct_basic_kernel(
            gpflow.kernels.SquaredExponential(lengthscales=np.ones(d_in)),
            output_dim=d_out,
            share_hyperparams=True,
        )
        z = np.random.default_rng(index).normal(size=(o.num_inducing, d_in))
        inducing = construct_basic_inducing_variables(
            o.num_inducing, d_in, output_dim=d_out, share_variables=True, z_init=z
        )
        mean = (
            gpflow.mean_functions.Zero()
            if last
            else gpflow.mean_functions.Linear(np.eye(d_in, d_out))
        )
        gpflow.set_trainable(mean, False)
        layer = GPLayer(kernel, inducing, num_data=len(X), mean_function=mean, num_latent_gps=d_out)
        layer.q_sqrt.assign(layer.q_sqrt * (1.0 if last else 1e-5))
        layers.append(layer)
    likelihood = LikelihoodLayer(gpflow.likelihoods.Gaussian(0.01))
    model = DeepGP(layers, likelihood, num_data=len(X)).as_training_model()
    # GPflux draws one sample a point: S samples are S copies of the batch.
    X_batch, Y_batch = (tf.tile(b, [o.samples, 1]) for b in batch)

    def loss() -> tf.Tensor:
        model({"inputs": X_batch, "targets": Y_batch}, training=True)
        return tf.add_n(model.losses)

    return adam_step(loss, model.trainable_variables)
