"""
Deep GPs of other projects on the panel, by their documentation's examples, for as long as the default has.

    PYTHON benchmarks/panel_peers.py NAME SECONDS SEED INPUT.npz OUTPUT.npz

The input has X [N, D], y [N] and X_test, standardised; the output a mixture of Gaussians for the latter: mean
and variance [S, N, 1], log_weights [S]. A script of its own, so that it runs by any interpreter that has the
project: none of them needs this package.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

Mixture = tuple[np.ndarray, np.ndarray, np.ndarray]


def _batches(num_rows: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Rows of minibatches, pass after pass."""
    while True:
        order = rng.permutation(num_rows)
        yield from np.array_split(order, -(-num_rows // size))


def gpytorch(
    name: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seconds: float, seed: int
) -> Mixture:
    """
    Its examples "Deep Gaussian Processes" (ten hidden GPs, 128 inducing points, Adam 0.01, ten samples) and
    "Deep Sigma Point Processes" (three hidden GPs, 300 inducing points, eight sites, Adam 0.01): inputs
    between -1 and 1, minibatches of about 1000.

    The latter's example takes a tenth of the rate after a twentieth, three and six eighths of its run, which
    is far longer: in a minute so small a rate learns nothing (concrete, first split: -4.12). Of a constant
    rate (-2.95), a tenth after three quarters (-2.95), and after three and six eighths (-3.24), the second is
    taken.
    """
    import gpytorch
    import torch
    from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
    from gpytorch.models.deep_gps.dspp import DSPP, DSPPLayer
    from scipy.cluster.vq import kmeans2

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    started, rng = time.process_time(), np.random.default_rng(seed)
    low, high = X.min(axis=0), X.max(axis=0)
    X, X_test = (2.0 * (a - low) / np.where(high > low, high - low, 1.0) - 1.0 for a in (X, X_test))
    sites = name == "gpytorch-dspp"
    num_inducing, hidden_dim, samples = (300, 3, 8) if sites else (128, 10, 10)
    num_inducing = min(num_inducing, len(X))
    centres, _ = kmeans2(X.astype(np.float32), num_inducing, minit="points", seed=seed)

    class Layer(DSPPLayer if sites else DeepGPLayer):  # type: ignore[misc]
        def __init__(self, d_in: int, d_out: int | None, Z: Any) -> None:
            shape = torch.Size([] if d_out is None else [d_out])
            family = gpytorch.variational
            q_class = (
                family.MeanFieldVariationalDistribution
                if sites
                else family.CholeskyVariationalDistribution
            )
            q = q_class(num_inducing, batch_shape=shape)
            strategy = family.VariationalStrategy(self, Z, q, learn_inducing_locations=True)
            options = {"num_quad_sites": samples} if sites else {}
            super().__init__(strategy, d_in, d_out, **options)
            linear = d_out is not None
            self.mean = (
                gpytorch.means.LinearMean(d_in, batch_shape=shape if sites else torch.Size())
                if linear
                else gpytorch.means.ConstantMean(batch_shape=shape)
            )
            base = (
                gpytorch.kernels.MaternKernel(nu=2.5, batch_shape=shape, ard_num_dims=d_in)
                if sites
                else gpytorch.kernels.RBFKernel(batch_shape=shape, ard_num_dims=d_in)
            )
            self.kernel = gpytorch.kernels.ScaleKernel(base, batch_shape=shape)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    class Model(DSPP if sites else DeepGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(*([samples] if sites else []))
            first = torch.randn(hidden_dim, num_inducing, X.shape[1])
            if sites:
                first = torch.from_numpy(centres) + 0.01 * first
            self.hidden = Layer(X.shape[1], hidden_dim, first)
            self.last = Layer(hidden_dim, None, torch.randn(num_inducing, hidden_dim))

        def forward(self, x: Any) -> Any:
            return self.last(self.hidden(x))

    model, likelihood = Model(), gpytorch.likelihoods.GaussianLikelihood()
    if sites:
        objective = gpytorch.mlls.DeepPredictiveLogLikelihood(likelihood, model, len(X), beta=0.05)
    else:
        bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(X))
        objective = gpytorch.mlls.DeepApproximateMLL(bound)
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.01)
    inputs, targets = (torch.from_numpy(a.astype(np.float32)) for a in (X, y))
    for rows in _batches(len(X), 1024, rng):
        share = (time.process_time() - started) / seconds
        if share >= 1.0:
            break
        for group in optimizer.param_groups:
            group["lr"] = 0.001 if sites and share >= 0.75 else 0.01
        optimizer.zero_grad()
        with gpytorch.settings.num_likelihood_samples(samples):
            loss = -objective(model(inputs[rows]), targets[rows])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(samples if sites else 50):
        found = [
            likelihood(model(part))
            for part in torch.from_numpy(X_test.astype(np.float32)).split(1000)
        ]
        mean = np.concatenate([f.mean.numpy() for f in found], axis=-1)
        variance = np.concatenate([f.variance.numpy() for f in found], axis=-1)
        weights = model.quad_weights.numpy() if sites else np.full(len(mean), -np.log(len(mean)))
    return mean[..., None], variance[..., None], weights


def gpflux(
    name: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seconds: float, seed: int
) -> Mixture:
    """As its tutorials make deep GPs: layers as wide as the input, two here, of 100 points; Adam 0.01."""
    del name
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    from gpflux.architectures import Config, build_constant_input_dim_deep_gp

    tf.keras.backend.set_floatx("float64")
    tf.random.set_seed(seed)
    np.random.seed(seed)
    started, rng = time.process_time(), np.random.default_rng(seed)
    config = Config(
        num_inducing=min(100, len(X)),
        inner_layer_qsqrt_factor=1e-5,
        likelihood_noise_variance=1e-2,
        whiten=True,
    )
    deep_gp = build_constant_input_dim_deep_gp(X, num_layers=2, config=config)
    model = deep_gp.as_training_model()
    optimizer = tf.keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function(reduce_retracing=True)
    def step(inputs: Any, targets: Any) -> None:
        with tf.GradientTape() as tape:
            model({"inputs": inputs, "targets": targets}, training=True)
            loss = tf.add_n(model.losses)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for rows in _batches(len(X), 1024, rng):
        if time.process_time() - started >= seconds:
            break
        step(tf.constant(X[rows]), tf.constant(y[rows, None]))
    prediction = deep_gp.as_prediction_model()

    @tf.function(reduce_retracing=True)
    def predict(inputs: Any) -> tuple[Any, Any]:
        found = prediction(inputs)
        return found.y_mean, found.y_var

    means, variances = [], []
    for part in np.array_split(X_test, -(-len(X_test) // 1000)):
        drawn = [predict(tf.constant(part)) for _ in range(50)]
        means.append(np.stack([mean for mean, _ in drawn]))
        variances.append(np.stack([variance for _, variance in drawn]))
    mean, variance = np.concatenate(means, axis=1), np.concatenate(variances, axis=1)
    return mean, variance, np.full(len(mean), -np.log(len(mean)))


def main() -> None:
    """See the top of this file."""
    name, seconds, seed, source, target = sys.argv[1:]
    run = gpflux if name == "gpflux" else gpytorch
    data = np.load(source)
    mean, variance, log_weights = run(
        name, data["X"], data["y"], data["X_test"], float(seconds), int(seed)
    )
    np.savez(target, mean=mean, variance=variance, log_weights=log_weights)


if __name__ == "__main__":
    main()
