"""
Predictions, written once for all deep models: every one of them predicts a weighted mixture of
Gaussians over the last layer's functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import Layer
from ..numerics.linalg import cholesky
from ..validation import as_real_tensor, check_positive_integer, check_targets

__all__ = [
    "Mixture",
    "MixturePredictor",
    "equal_log_weights",
    "in_parts",
    "independent_outputs",
    "sample_joint_mixture",
    "sample_mixture",
]

# How many sampled inputs a prediction carries through the layers at once.
_ROWS = 16_384


class Mixture(NamedTuple):
    """A mixture of S Gaussians at each of N points."""

    means: tf.Tensor  # [S, N, P]
    variances: tf.Tensor  # [S, N, P]
    log_weights: tf.Tensor  # [S]


class MixturePredictor(ABC):
    """
    GPflow's predictions for a model whose functions are a mixture of Gaussians.

    A subclass has ``layers`` and a ``likelihood``, and says what the components are and what can be
    computed before the inputs are known. AutoGraph is kept out, here as in the models: there is no Python
    control flow to convert, and to look for it takes most of the time of tracing.
    """

    layers: Sequence[Layer]
    likelihood: Likelihood

    @abstractmethod
    def _prepare(self) -> Any:
        """All that the predictions need and that no input enters."""

    @abstractmethod
    def _mixture(self, Xnew: tf.Tensor, num_samples: int | None, prepared: Any) -> Mixture:
        """The components at each point."""

    @abstractmethod
    def _output_mixture(self, Xnew: tf.Tensor, prepared: Any) -> Mixture:
        """Likewise with the covariance of the outputs as variances: [S, N, P, P]."""

    @abstractmethod
    def _joint_mixture(self, Xnew: tf.Tensor, prepared: Any) -> Mixture:
        """Likewise with the covariance of the points as variances: [S, P, N, N]."""

    def _full_mixture(self, Xnew: tf.Tensor, prepared: Any) -> Mixture:
        """
        Likewise with the covariance of points and outputs: [S, N, P, N, P]. Here the outputs of a component
        are independent.
        """
        means, covariances, log_weights = self._joint_mixture(Xnew, prepared)
        return Mixture(means, independent_outputs(covariances, means.shape[-1]), log_weights)

    @abstractmethod
    def _sample_f(
        self, Xnew: tf.Tensor, num_samples: int, full_cov: bool, prepared: Any
    ) -> tf.Tensor:
        """Draws of the last layer's functions [S, N, P], coherent over the points if ``full_cov``."""

    @tf.autograph.experimental.do_not_convert
    def predict_f_mixture(self, Xnew: InputData, num_samples: int | None = None) -> Mixture:
        """
        The components of the posterior of the last layer's functions, point by point.

        :param Xnew: inputs [N, D].
        :param num_samples: number of components S; the model's ``num_prediction_samples`` by default. Where
            points travel by learned sites, these are the components, whatever it says.
        :return: means [S, N, P], variances [S, N, P], log weights [S].
        """
        return self._mixture(self._as_matrix(Xnew), num_samples, self._prepare())

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "Xnew: [batch..., N, D]",
        "return[0]: [batch..., N, P]",
        "return[1]: [batch..., N, P, N, P] if full_cov and full_output_cov",
        "return[1]: [batch..., P, N, N] if full_cov and (not full_output_cov)",
        "return[1]: [batch..., N, P, P] if (not full_cov) and full_output_cov",
        "return[1]: [batch..., N, P] if (not full_cov) and (not full_output_cov)",
    )
    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        Mean and variance of the posterior of the last layer's functions: moments of the mixture.

        The same call gives the same answer: its draws are fixed by the model's ``seed``. Of a deep model the
        draws with ``full_cov`` are others, of whole functions: mean and variances agree with those without
        it to within the error of ``num_prediction_samples`` draws.

        :param Xnew: inputs; with ``full_cov``, without batch dimensions.
        :param full_cov: return the covariance over the points (cubic in N).
        :param full_output_cov: return the covariance over the outputs.
        """
        if full_cov and full_output_cov:
            means, covariances, log_weights = self._full_mixture(
                self._as_matrix(Xnew), self._prepare()
            )
            mean = _average(means, log_weights)
            centred = means - mean
            weighted = tf.exp(log_weights)[:, None, None] * centred
            between = tf.tensordot(weighted, centred, [[0], [0]])  # [N, P, N, P]
            return mean, _average(covariances, log_weights) + between
        if full_cov:
            means, covariances, log_weights = self._joint_mixture(
                self._as_matrix(Xnew), self._prepare()
            )
            centred = tf.transpose(means - _average(means, log_weights), [2, 1, 0])  # [P, N, S]
            between = tf.matmul(centred * tf.exp(log_weights), centred, transpose_b=True)
            return _average(means, log_weights), _average(covariances, log_weights) + between
        if full_output_cov:
            flat, restore = self._as_rows(Xnew)
            means, covariances, log_weights = self._output_mixture(flat, self._prepare())
            mean = _average(means, log_weights)
            centred = means - mean
            outer = centred[..., :, None] * centred[..., None, :]
            return restore(mean), restore(_average(covariances + outer, log_weights))
        flat, restore = self._as_rows(Xnew)
        mean, variance = _moments(self.predict_f_mixture(flat))
        return restore(mean), restore(variance)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "Xnew: [N, D]",
        "return: [N, P] if (num_samples is None)",
        "return: [S, N, P] if (num_samples is not None)",
    )
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """
        Draws from the posterior of the last layer's functions, new ones at each call.

        :param Xnew: inputs.
        :param num_samples: number of draws; a single one without the sample axis by default.
        :param full_cov: draw coherent functions over all points (cubic in N), rather than each point
            by itself.
        :param full_output_cov: accepted for GPflow's sake: draws of one point are always coherent over
            the outputs.
        """
        del full_output_cov
        Xnew = self._as_matrix(Xnew)
        if num_samples is None:
            return self._sample_f(Xnew, 1, full_cov, self._prepare())[0]
        S = check_positive_integer(num_samples, "num_samples")
        return self._sample_f(Xnew, S, full_cov, self._prepare())

    @tf.autograph.experimental.do_not_convert
    def predict_y_mixture(self, Xnew: InputData, num_samples: int | None = None) -> Mixture:
        """
        The components of the predictive distribution of new observations, by their means and variances:
        exact for a Gaussian likelihood.

        :param Xnew: inputs [N, D].
        :return: means [S, N, P], variances [S, N, P], log weights [S].
        """
        Xnew = self._as_matrix(Xnew)
        f = self.predict_f_mixture(Xnew, num_samples)
        mean, variance = self._through_likelihood(self.likelihood.predict_mean_and_var, Xnew, f)
        return Mixture(mean, variance, f.log_weights)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "Xnew: [batch..., N, D]",
        "return[0]: [batch..., N, P]",
        "return[1]: [batch..., N, P]",
    )
    def predict_y(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        Mean and variance of new observations.

        :param full_cov: as in GPflow, only ``False`` is possible.
        :param full_output_cov: likewise.
        """
        if full_cov or full_output_cov:
            raise NotImplementedError(
                "predict_y: expected full_cov=False and full_output_cov=False, got True."
            )
        flat, restore = self._as_rows(Xnew)
        mean, variance = _moments(self.predict_y_mixture(flat))
        return restore(mean), restore(variance)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "data[0]: [batch..., N, D]",
        "data[1]: [batch..., N, P]",
        "return: [batch..., N]",
    )
    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """
        Log density of new observations: the logarithm of the average predictive density over the
        components (the papers' marginal test log-likelihood).

        :param data: inputs and observations.
        :param full_cov: as in GPflow, only ``False`` is possible.
        :param full_output_cov: likewise.
        """
        if full_cov or full_output_cov:
            raise NotImplementedError(
                "predict_log_density: expected full_cov=False and full_output_cov=False, got True."
            )
        X, Y = data
        flat, restore = self._as_rows(X)
        Y = check_targets(Y, self.likelihood, self.layers[-1].num_latent_gps, "data[1]")
        f = self.predict_f_mixture(flat)
        return restore(self._log_density(flat, f, tf.reshape(Y, [-1, Y.shape[-1]])))

    def _log_density(self, X: tf.Tensor, f: Mixture, Y: tf.Tensor) -> tf.Tensor:
        """Log of the weighted average predictive density of each observation, [N]."""
        log_densities = self._through_likelihood(self.likelihood.predict_log_density, X, f, Y)
        return tf.reduce_logsumexp(log_densities + f.log_weights[:, None], axis=0)

    def _as_inputs(self, X: InputData, name: str = "Xnew") -> tf.Tensor:
        """Inputs [..., N, D] in the default float, whose D is the first layer's."""
        tensor = tf.cast(as_real_tensor(X, name), gpflow.default_float())
        input_dim = self.layers[0].input_dim
        if input_dim is None:
            return tensor
        if tensor.shape.rank is not None and tensor.shape[-1] not in (None, input_dim):
            raise ValueError(
                f"{name}: expected [..., {input_dim}] like the first layer's inducing inputs, got"
                f" {tensor.shape}."
            )
        # Where the shape is not known by now.
        return tf.ensure_shape(tensor, tensor.shape[:-1].concatenate(input_dim))

    def _as_matrix(self, Xnew: InputData) -> tf.Tensor:
        X = self._as_inputs(Xnew)
        if X.shape.rank != 2:
            raise ValueError(f"Xnew: expected a matrix [N, D], got shape {X.shape}.")
        return X

    def _as_rows(self, Xnew: InputData) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        """Inputs as a matrix, and how to give what was computed for its rows the batch shape back."""
        X = self._as_inputs(Xnew)
        if X.shape.rank == 2:
            return X, lambda x: x
        batch = tf.shape(X)[:-1]

        def restore(x: tf.Tensor) -> tf.Tensor:
            return tf.reshape(x, tf.concat([batch, x.shape[1:]], axis=0))

        return tf.reshape(X, [-1, X.shape[-1]]), restore

    def _through_likelihood(
        self, function: Callable, X: tf.Tensor, f: Mixture, *observations: tf.Tensor
    ) -> tf.nest.Structure:
        """A likelihood's function of (X, mean, variance[, Y]) for all components at once."""
        S = tf.shape(f.means)[0]

        def tile(x: tf.Tensor) -> tf.Tensor:
            return tf.tile(x, [S, 1])

        def rows(x: tf.Tensor) -> tf.Tensor:
            return tf.reshape(x, [-1, x.shape[-1]])

        values = function(tile(X), rows(f.means), rows(f.variances), *map(tile, observations))
        N = tf.shape(X)[0]
        return tf.nest.map_structure(lambda x: tf.reshape(x, [S, N, *x.shape[1:]]), values)


def equal_log_weights(num_samples: TensorType) -> tf.Tensor:
    """Logarithms of S equal weights."""
    size = tf.cast(num_samples, gpflow.default_float())
    return tf.fill([num_samples], -tf.math.log(size))


def _average(x: tf.Tensor, log_weights: tf.Tensor) -> tf.Tensor:
    """Weighted mean over the components, the first axis."""
    return tf.tensordot(tf.exp(log_weights), x, [[0], [0]])


def _moments(mixture: Mixture) -> MeanAndVariance:
    means, variances, log_weights = mixture
    mean = _average(means, log_weights)
    return mean, _average(variances + tf.square(means - mean), log_weights)


def independent_outputs(covariances: tf.Tensor, num_outputs: int) -> tf.Tensor:
    """Covariances of the points [S, P or 1, N, N] as those of points and outputs: [S, N, P, N, P]."""
    by_point = tf.transpose(covariances, [0, 2, 3, 1])  # [S, N, N, P or 1]
    shape = tf.concat([tf.shape(by_point)[:-1], [num_outputs]], axis=0)
    return tf.transpose(tf.linalg.diag(tf.broadcast_to(by_point, shape)), [0, 1, 3, 2, 4])


def sample_mixture(mixture: Mixture, num_samples: int) -> tf.Tensor:
    """New draws [num_samples, N, P] from a mixture, each point by itself."""
    means, variances, log_weights = mixture
    N = tf.shape(means)[1]
    component = tf.random.categorical(log_weights[None], num_samples * N)
    rows = tf.stack([component[0], tf.tile(tf.range(N, dtype=tf.int64), [num_samples])], axis=-1)
    mean, variance = (
        tf.reshape(tf.gather_nd(x, rows), [num_samples, N, x.shape[-1]]) for x in (means, variances)
    )
    return mean + tf.sqrt(variance) * tf.random.normal(tf.shape(mean), dtype=mean.dtype)


def sample_joint_mixture(mixture: Mixture, num_samples: int) -> tf.Tensor:
    """New draws [num_samples, N, P], coherent over the points, from a mixture of joint Gaussians."""
    means, covariances, log_weights = mixture  # [S, N, P], [S, P, N, N], [S]
    component = tf.random.categorical(log_weights[None], num_samples)[0]
    # The jitter, and what rounding may have taken from the smallest eigenvalue of a sum of N terms.
    diagonal = tf.linalg.diag_part(covariances)
    eps = np.finfo(means.dtype.as_numpy_dtype).eps
    rounding = eps * tf.cast(tf.shape(means)[1], means.dtype) * tf.reduce_max(diagonal)
    diagonal += gpflow.config.default_jitter() + rounding
    scale = cholesky(
        tf.linalg.set_diag(covariances, diagonal), "the covariance of the outputs at the inputs", {}
    )
    mean = tf.gather(means, component)
    noise = tf.random.normal(tf.shape(tf.linalg.matrix_transpose(mean)), dtype=mean.dtype)
    draws = tf.linalg.matvec(tf.gather(scale, component), noise)  # [num_samples, P, N]
    return mean + tf.linalg.matrix_transpose(draws)


def in_parts(
    function: Callable[[tf.Tensor], tuple[tf.Tensor, ...]], X: tf.Tensor, num_samples: int
) -> tuple[tf.Tensor, ...]:
    """
    ``function`` of all inputs, a part of them at a time: that bounds the memory of predictions.

    :param function: of inputs [n, D]; it returns a tuple of tensors [S, n, ...].
    :param X: inputs [N, D].
    :param num_samples: S.
    """
    size = max(1, _ROWS // num_samples)
    if X.shape[0] is not None and X.shape[0] <= size:
        return function(X)
    N = tf.shape(X)[0]
    if tf.executing_eagerly():
        pieces = [function(X[i : i + size]) for i in range(0, int(N), size)]
        return tuple(tf.concat(piece, axis=1) for piece in zip(*pieces))
    rows = tf.maximum(N, 1)  # of no points too there is a part, to be cut off again
    size = tf.minimum(size, rows)
    padded = tf.pad(X, [[0, rows - N + (-rows) % size], [0, 0]])
    parts = tf.map_fn(
        function,
        tf.reshape(padded, [-1, size, X.shape[1]]),
        fn_output_signature=tuple(tf.nest.map_structure(lambda x: x.dtype, function(X[:1]))),
    )  # [parts, S, size, ...]

    def join(x: tf.Tensor) -> tf.Tensor:
        x = tf.transpose(x, [1, 0, 2, *range(3, x.shape.rank)])
        return tf.reshape(x, [x.shape[0], -1, *x.shape[3:]])[:, :N]

    return tuple(join(x) for x in parts)
