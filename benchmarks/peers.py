"""
One Adam step of other projects' deep GPs. They are optional development dependencies and may live in an
environment of their own: nothing here needs this package, and GPyTorch's step does not need TensorFlow.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from harness import adam_step

GPYTORCH = ("gpytorch-dspp", "gpytorch-deep-gp")


def _gpflux_layer(kernel: Any, Z: Any, mean_function: Any, width: int, num_data: int) -> Any:
    """GPs that share their kernel and inducing inputs, as the layers of this package do."""
    from gpflux.helpers import construct_basic_inducing_variables, construct_basic_kernel
    from gpflux.layers import GPLayer

    return GPLayer(
        construct_basic_kernel(kernel, output_dim=width, share_hyperparams=True),
        construct_basic_inducing_variables(
            len(Z), Z.shape[1], output_dim=width, share_variables=True, z_init=Z
        ),
        num_data=num_data,
        mean_function=mean_function,
        num_latent_gps=width,
    )


def gpflux_step(
    dtype: str, X: Any, batch: tuple[Any, Any], o: argparse.Namespace
) -> Callable[[], object]:
    import gpflow
    import numpy as np
    import tensorflow as tf
    from gpflow.keras import tf_keras
    from gpflux.layers import LikelihoodLayer
    from gpflux.models import DeepGP

    tf.keras.backend.set_floatx(dtype)
    dims = [o.input_dim] + [o.width] * (o.layers - 1) + [1]
    layers = []
    for index, (d_in, d_out) in enumerate(zip(dims, dims[1:])):
        last = index == o.layers - 1
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(d_in))
        z = np.random.default_rng(index).normal(size=(o.num_inducing, d_in))
        mean = (
            gpflow.mean_functions.Zero()
            if last
            else gpflow.mean_functions.Linear(np.eye(d_in, d_out))
        )
        gpflow.set_trainable(mean, False)
        layer = _gpflux_layer(kernel, z, mean, d_out, len(X))
        layer.q_sqrt.assign(layer.q_sqrt * (1.0 if last else 1e-5))
        layers.append(layer)
    likelihood = LikelihoodLayer(gpflow.likelihoods.Gaussian(0.01))
    model = DeepGP(layers, likelihood, num_data=len(X)).as_training_model()
    # GPflux draws one sample a point: S samples are S copies of the batch.
    X_batch, Y_batch = (tf.tile(b, [o.samples, 1]) for b in batch)

    def loss() -> tf.Tensor:
        model({"inputs": X_batch, "targets": Y_batch}, training=True)
        return tf.add_n(model.losses)

    optimizer = tf_keras.optimizers.Adam(0.005)
    return adam_step(loss, model.trainable_variables, optimizer=optimizer)


def gpflux_twin(model: Any, num_data: int) -> Any:
    """
    GPflux's deep GP with the layers, kernels, mean functions, inducing inputs and initial values of a
    mean-field :class:`gpflow_deep.models.DeepGP` with squared exponential kernels.
    """
    import gpflow
    import numpy as np
    import tensorflow as tf
    from gpflux.layers import LikelihoodLayer
    from gpflux.models import DeepGP

    tf.keras.backend.set_floatx("float64")
    layers, q = [], model.inducing_posterior
    for own, q_mu, q_sqrt in zip(model.layers, q.q_mu, q.q_sqrt):
        kernel = gpflow.utilities.deepcopy(own.kernel)
        Z = np.asarray(own.inducing_variable.Z)
        layer = _gpflux_layer(kernel, Z, own.mean_function, own.num_latent_gps, num_data)
        layer.q_mu.assign(np.asarray(q_mu).reshape(layer.q_mu.shape))
        layer.q_sqrt.assign(np.asarray(q_sqrt).reshape(layer.q_sqrt.shape))
        layers.append(layer)
    variance = float(model.likelihood.variance.numpy())
    return DeepGP(layers, LikelihoodLayer(gpflow.likelihoods.Gaussian(variance)), num_data=num_data)


def gpytorch_step(
    name: str,
    dtype: str,
    batch: tuple[Any, Any],
    *,
    widths: Sequence[int],
    num_inducing: Sequence[int],
    samples: int,
    num_data: int,
) -> Callable[[], object]:
    """
    As in GPyTorch's examples of the two models: a kernel and inducing inputs for every GP, linear means in
    hidden layers, a constant one at the output. Both have full covariances of q, as our models have: its
    example of the DSPP has diagonal ones.
    """
    import gpytorch
    import torch
    from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
    from gpytorch.models.deep_gps.dspp import DSPP, DSPPLayer

    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, dtype))
    torch.manual_seed(0)
    sigma_points = name == "gpytorch-dspp"

    class Layer(DSPPLayer if sigma_points else DeepGPLayer):  # type: ignore[misc]
        def __init__(self, d_in: int, d_out: int | None, M: int) -> None:
            shape = torch.Size([] if d_out is None else [d_out])
            q = gpytorch.variational.CholeskyVariationalDistribution(M, batch_shape=shape)
            strategy = gpytorch.variational.VariationalStrategy(
                self, torch.randn(*shape, M, d_in), q, learn_inducing_locations=True
            )
            sites = {"num_quad_sites": samples} if sigma_points else {}
            super().__init__(strategy, d_in, d_out, **sites)
            self.mean = (
                gpytorch.means.ConstantMean(batch_shape=shape)
                if d_out is None
                else gpytorch.means.LinearMean(d_in, batch_shape=shape)
            )
            self.kernel = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(batch_shape=shape, ard_num_dims=d_in), batch_shape=shape
            )

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    class Model(DSPP if sigma_points else DeepGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(*([samples] if sigma_points else []))
            sizes = zip([batch[0].shape[1], *widths], [*widths, None], num_inducing)
            self.layers = torch.nn.ModuleList([Layer(*size) for size in sizes])

        def forward(self, x: torch.Tensor) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    model, likelihood = Model(), gpytorch.likelihoods.GaussianLikelihood()
    if sigma_points:
        objective = gpytorch.mlls.DeepPredictiveLogLikelihood(
            likelihood, model, num_data, beta=0.05
        )
    else:
        objective = gpytorch.mlls.DeepApproximateMLL(
            gpytorch.mlls.VariationalELBO(likelihood, model, num_data)
        )
    X, y = torch.from_numpy(batch[0]), torch.from_numpy(batch[1][:, 0])
    # The objective's parameters are those of both modules, each once.
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.005)

    def step() -> float:
        optimizer.zero_grad()
        with gpytorch.settings.num_likelihood_samples(samples):
            loss = -objective(model(X), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
