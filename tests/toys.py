"""A model and settings that make the studies quick to test."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_deep.presets import Settings

#: Seconds, not hours.
QUICK = Settings(
    num_inducing=6, steps=12, batch_size=64, validate_every=6, test_samples=3, learning_rate=0.05
)


class MixtureSVGP(gpflow.models.SVGP):
    """GPflow's SVGP with what a study asks of a model beyond GPflow's interface."""

    def predict_y_mixture(
        self, Xnew: np.ndarray, num_samples: int
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """`num_samples` equal components."""
        mean, variance = self.predict_y(Xnew)
        repeats = [num_samples, 1, 1]
        log_weights = tf.fill([num_samples], -tf.math.log(tf.cast(num_samples, mean.dtype)))
        return tf.tile(mean[None], repeats), tf.tile(variance[None], repeats), log_weights


def build_svgp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> MixtureSVGP:
    rows = np.random.default_rng(seed).permutation(len(X))[: settings.num_inducing]
    return MixtureSVGP(
        gpflow.kernels.SquaredExponential(lengthscales=float(settings.num_layers)),
        gpflow.likelihoods.Gaussian(settings.likelihood_variance),
        X[rows],
        num_data=len(X),
    )
