"""Whether the states of Markov chains stand for a posterior, by the predictions that they make."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import InputData

from ..numerics.parts import in_parts, part_size
from ..numerics.warning import complex_casts_unsaid, warn_caller
from .passage import walk

__all__ = ["Convergence", "JudgesConvergence"]

# Above and below these the kept states do not stand for a posterior (Gelman et al., Bayesian Data Analysis).
_LARGEST_R_HAT = 1.1
_LEAST_SAMPLE_SIZE = 10
_LEAST_STATES = 8  # of a chain: four in each half of it


class Convergence(NamedTuple):
    """
    How well the kept states stand for the posterior, prediction by prediction.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(), num_inducing=5)
    >>> model = gd.models.SampledDeepGP(
    ...     layers, gpflow.likelihoods.Gaussian(0.1), num_chains=2, num_prediction_samples=16
    ... )
    >>> for _ in range(8):  # as training does
    ...     model.inducing_posterior.keep()
    >>> model.convergence(X).r_hat.shape
    TensorShape([20, 1])
    """

    r_hat: tf.Tensor  # [N, P], potential scale reduction
    effective_sample_size: tf.Tensor  # [N, P], of all chains together


class JudgesConvergence:
    """The part of a sampled model that tells whether its chains agree."""

    @tf.autograph.experimental.do_not_convert
    def predict_f_trace(self: Any, Xnew: InputData) -> tf.Tensor:
        """
        The means of the last layer's functions at each kept state, the hidden layers at their means: what
        convergence is judged by, as the inducing outputs themselves are many, and have symmetries.

        :param Xnew: inputs [N, D].
        :return: [R, C, N, P], R states of C chains, oldest first.
        """
        X, states = self._as_matrix(Xnew), self.inducing_posterior.states()
        R, C = tf.shape(states[0])[0], self.inducing_posterior.num_chains
        flat = [tf.reshape(v, [R * C, *v.shape[2:]]) for v in states]
        prepared = self._prepare()._replace(states=flat)
        noise = [tf.zeros([R * C, 1, layer.num_latent_gps], X.dtype) for layer in self.layers[:-1]]

        def part(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return self._marginals(walk(self.layers, self._passage(prepared), X, noise)[-1])[:1]

        size = part_size(self.inducing_posterior.num_kept * C)
        means = in_parts(part, [X], size, 1, axis=1)[0]
        return tf.reshape(means, [R, C, tf.shape(X)[0], self._output_dim])

    def convergence(self: Any, Xnew: InputData) -> Convergence:
        """
        R-hat (of split chains) and effective sample size of the predictions at some inputs; of one chain too.

        A warning says so where R-hat is above 1.1 at more than one in twenty points, or the effective sample
        size below 10 there: the chains then disagree, and more steps are needed.

        :param Xnew: inputs [N, D], such as those of held-out points.
        :raises ValueError: where fewer than eight states of each chain have been kept.
        """
        trace = self.predict_f_trace(Xnew)
        return _convergence_of(trace, int(self.inducing_posterior.num_predicting()))


def _convergence_of(trace: tf.Tensor, num_states: int) -> Convergence:
    """
    R-hat and effective sample size of each prediction, with a warning where the chains disagree.

    :param trace: predictions at R states of C chains, [R, C, N, P].
    :param num_states: how many of each chain were kept, for the message.
    :raises ValueError: where there are fewer than eight states of each chain.
    """
    if trace.shape[0] < _LEAST_STATES:
        raise ValueError(
            f"convergence: expected at least {_LEAST_STATES} kept states of each chain, got"
            f" {num_states}."
        )
    r_hat = _split_r_hat(trace)
    several = trace.shape[1] > 1
    with complex_casts_unsaid():
        size = tfp.mcmc.effective_sample_size(
            trace if several else trace[:, 0], cross_chain_dims=1 if several else None
        )
    typical_r_hat = tfp.stats.percentile(r_hat, 95.0)
    typical_size = tfp.stats.percentile(size, 5.0)
    if not (typical_r_hat <= _LARGEST_R_HAT and typical_size >= _LEAST_SAMPLE_SIZE):
        warn_caller(
            f"The chains have not converged: at one in twenty predictions R-hat is above"
            f" {typical_r_hat:.2f} or the effective sample size below {typical_size:.0f}. Take more"
            " steps, or keep states further apart."
        )
    return Convergence(r_hat, size)


def _split_r_hat(trace: tf.Tensor) -> tf.Tensor:
    """
    The root of the ratio of the variance of all states to that within half a chain (Gelman et al., Bayesian
    Data Analysis, third edition, equation 11.4), of which TensorFlow Probability gives about the square.

    :param trace: [R, C, ...].
    :return: [...].
    """
    n = trace.shape[0] // 2
    # Of an odd number without the one in the middle.
    halves = tf.concat([trace[:n], trace[-n:]], axis=1)
    within = tf.reduce_mean(tf.math.reduce_variance(halves, axis=0), axis=0) * n / (n - 1.0)
    means = tf.reduce_mean(halves, axis=0)
    chains = means.shape[0]
    between = tf.math.reduce_variance(means, axis=0) * chains / (chains - 1.0)
    return tf.sqrt((n - 1.0) / n + between / within)
