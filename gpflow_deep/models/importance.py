"""
Points on their way through layers together with latent variables, several importance samples of each.

The functions are the same for all samples of a point: their values there are drawn jointly, which takes a
K x K covariance for every point and GP. (Drawn one by one they would make an average over functions of what
is to be the logarithm of one, and that is no bound.)

How a draw depends on what it is made of can be chosen, as far as its law stays what it is. Where the caller
fixes the draws, a draw is mean + L e with the Cholesky factor L, and the objective a function of the
parameters. Where draws are new, its gradient is that of a function that was drawn: with S = L L^T and
alpha = S^-1 (f - mean), a change D + D^T of S changes f by D alpha, which keeps the law. With D the change by
the first argument of the covariance, the derivative of the value at one sample's input is what the values at
all K lead to expect of the function's slope there, and no other sample's value depends on that input. That
is what the doubly reparameterised gradient (Tucker et al. 2019) takes for granted; no factorisation has to
be differentiated for it, nor the largest product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..layers import GPLayer, Projection
from ..layers.covariances import local_covariances, prior_variance
from ..numerics.linalg import cast_all
from ..posteriors.base import Conditional, Moments
from ..posteriors.latent_variables import Latents
from ..posteriors.mean_field import project_mean, project_variance
from .passage import Passage

__all__ = ["AppendedLatents", "ImportanceLatents", "LatentPassage", "SharedFunctions"]


class AppendedLatents:
    """The layer that appends latent variables to inputs: what walks take draws for, and the prior."""

    def __init__(self, latent_dim: int) -> None:
        self.num_latent_gps = latent_dim

    def sample_prior(self, X: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """Inputs [S, N, D] and draws side by side: [S, N, D + W]."""
        return tf.concat([X, noise], axis=-1)


def _prior() -> Latents:
    """Of every latent variable."""
    return Latents(*(tf.constant(x, gpflow.default_float()) for x in (0.0, 1.0)))


class LatentPassage(Passage):
    """
    Latent variables appended to the inputs.

    :param latents: their distribution; ``None`` for the prior.
    """

    def __init__(self, latent_dim: int, latents: Latents | None = None) -> None:
        self._latent_dim = latent_dim
        self._latents = latents or _prior()

    def condition(self, layer: object, inputs: tf.Tensor, below: Conditional | None) -> Conditional:
        del layer, below
        shape = tf.concat([tf.shape(inputs)[:-1], [self._latent_dim]], axis=0)
        mean, scale = (tf.broadcast_to(x, shape) for x in self._latents)
        self._inputs, self._mean, self._scale = inputs, mean, scale
        variance = tf.concat([tf.zeros_like(inputs), tf.square(scale)], axis=-1)
        return Conditional(tf.concat([inputs, mean], axis=-1), variance)

    def sample(self, noise: TensorType | None) -> tf.Tensor:
        return self._append(self._mean + self._scale * noise)

    def _append(self, w: tf.Tensor) -> tf.Tensor:
        N = tf.maximum(tf.shape(w)[1], tf.shape(self._inputs)[1])
        S = tf.shape(w)[0]
        parts = [
            tf.broadcast_to(x, tf.stack([S, N, x.shape[-1] or tf.shape(x)[-1]]))
            for x in (self._inputs, w)
        ]
        return tf.concat(parts, axis=-1)


class ImportanceLatents(LatentPassage):
    """
    Likewise by importance samples from q(w): K of each draw, one after another.

    :param num_samples: K.
    :param doubly_reparameterised: whether q's parameters have the gradient of Tucker et al. 2019.
    """

    def __init__(
        self, latents: Latents, latent_dim: int, num_samples: int, doubly_reparameterised: bool
    ) -> None:
        super().__init__(latent_dim, latents)
        self._num_samples = num_samples
        self._is_double = doubly_reparameterised
        self._weights: tf.Tensor | None = None  # of the samples [S K, N], once they are known

    def sample(self, noise: TensorType | None) -> tf.Tensor:
        w, q = self._mean + self._scale * noise, self._latents
        if self._is_double:
            # What q says of a sample does not depend on q's parameters but through the sample.
            q = Latents(*map(tf.stop_gradient, q))
            w = self._weigh_gradient(w)
        self._log_ratio = _prior().log_density(w) - q.log_density(w)
        return self._append(w)

    def _weigh_gradient(self, w: tf.Tensor) -> tf.Tensor:
        """Itself; its gradient is multiplied by the samples' weights once more on the way to q."""

        @tf.custom_gradient
        def gate(w: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                # Asked for after the way forward, at whose end the weights are.
                assert self._weights is not None
                return upstream * self._weights[..., None]

            return tf.identity(w), gradient

        return gate(w)

    def log_average(self, log_densities: tf.Tensor) -> tf.Tensor:
        """
        log 1/K sum_k p(y | w_k) p(w_k) / q(w_k), averaged over the draws: [N].

        :param log_densities: log p(y | w_k), [S K, N].
        """
        K = self._num_samples
        N = tf.shape(log_densities)[1]
        log_weights = tf.reshape(log_densities + self._log_ratio, [-1, K, N])
        weights = tf.stop_gradient(tf.nn.softmax(log_weights, axis=1))
        self._weights = tf.reshape(weights, [-1, N])
        totals = tf.reduce_logsumexp(log_weights, axis=1) - np.log(K)
        return tf.reduce_mean(totals, axis=0)


class SharedFunctions(Passage):
    """
    Points through mean-field layers, whose functions all K samples of a point share.

    :param factors: per layer, what :meth:`GPLayer.factorise` returned.
    :param moments: of the inducing outputs, mean-field.
    :param num_samples: K; samples [S K, N, T] come with those of one draw one after another.
    :param jitter: added to the variance of draws.
    :param dtype: to compute the products over points in. Projections of layers whose values are drawn are in
        the default float: what they leave of the prior has to stay a covariance.
    :param slopes: whether draws have the gradients of drawn functions, rather than those of the Cholesky
        factor.
    """

    def __init__(
        self,
        factors: Sequence[tf.Tensor],
        moments: Moments,
        num_samples: int,
        jitter: float,
        dtype: str,
        slopes: bool,
    ) -> None:
        self._remaining = list(zip(factors, moments.layers))
        self._num_samples = num_samples
        self._jitter = jitter
        self._dtype = dtype
        self._slopes = slopes

    def condition(
        self, layer: GPLayer, inputs: tf.Tensor, below: Conditional | None
    ) -> Conditional:
        del below
        factor, q = self._remaining.pop(0)
        dtype = gpflow.default_float() if self._remaining else self._dtype
        projection = layer.project(tf.cast(inputs, dtype), tf.cast(factor, dtype))
        projection = Projection(*cast_all(projection, self._dtype))
        mean = tf.cast(project_mean(projection, q.mean), gpflow.default_float())
        variance = tf.cast(project_variance(projection, q.own), gpflow.default_float())
        self._at = layer, inputs, projection.basis, q.own
        self._mean = mean
        return Conditional(mean, variance)

    def sample(self, noise: TensorType | None) -> tf.Tensor:
        layer, inputs, basis, own = self._at
        inputs, basis, noise = map(self._by_point, (inputs, basis, noise))
        noise = tf.linalg.matrix_transpose(noise)[..., None]  # [S N, T, K, 1]
        if self._slopes:
            draws = self._along_functions(layer, inputs, basis, own, noise)
        else:
            prior = self._prior(layer, inputs, inputs)
            factor = self._factorise(layer, inputs, prior, self._forms(basis, own))
            draws = tf.matmul(factor, noise)
        S, N = tf.shape(self._mean)[0] // self._num_samples, tf.shape(self._mean)[1]
        draws = tf.reshape(draws[..., 0], [S, N, -1, self._num_samples])
        return self._mean + tf.reshape(tf.transpose(draws, [0, 3, 1, 2]), tf.shape(self._mean))

    def _along_functions(
        self,
        layer: GPLayer,
        inputs: tf.Tensor,
        basis: tf.Tensor,
        own: tf.Tensor,
        noise: tf.Tensor,
    ) -> tf.Tensor:
        """Draws [S N, T, K, 1] with the gradient D alpha (see the module)."""
        here, fixed = tf.stop_gradient(inputs), tf.stop_gradient(basis)
        # Half of a change of parameters, and all of one of the first argument.
        prior = self._prior(layer, 2.0 * inputs - here, here)
        forms = self._forms(fixed, tf.stop_gradient(own))
        factor = tf.stop_gradient(self._factorise(layer, here, prior, forms))
        alpha = tf.linalg.triangular_solve(factor, noise, adjoint=True)
        change = 0.5 * tf.matmul(prior, alpha)
        own = 0.5 * (own + tf.stop_gradient(own))
        weights = tf.cast(alpha[..., 0], basis.dtype)  # [S N, T, K]
        equation = "rkm,rtk->rtm" if basis.shape.rank == 3 else "rktm,rtk->rtm"
        outputs = tf.einsum("tmj,rtj->rtm", own, tf.einsum(equation, fixed, weights))
        equation = "rkm,rtm->rtk" if basis.shape.rank == 3 else "rktm,rtm->rtk"
        products = tf.einsum(equation, basis, outputs)[..., None]
        change += tf.cast(products, change.dtype)
        return tf.matmul(factor, noise) + change - tf.stop_gradient(change)

    def _prior(self, layer: GPLayer, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """Of each point's K values, with white noise on the diagonal: [S N, T or 1, K, K]."""
        # Of the first argument alone half of a variance's slope is; ``X`` has twice the inputs' slopes.
        rows = tf.reshape(0.5 * (X + X2), [-1, X.shape[-1]])
        variance = prior_variance(layer.kernel, rows)
        variance = tf.reshape(variance, [-1, self._num_samples, variance.shape[-1]])
        covariance = local_covariances(layer.kernel, X, X2)
        return tf.linalg.set_diag(covariance, tf.linalg.matrix_transpose(variance))

    def _forms(self, basis: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
        """What q adds to the covariances: [S N, T, K, K]."""
        if basis.shape.rank == 3:
            products = tf.einsum("rkm,tmj->rtkj", basis, own)
            forms = tf.einsum("rtkj,rlj->rtkl", products, basis)
        else:
            products = tf.einsum("rktm,tmj->rtkj", basis, own)
            forms = tf.einsum("rtkj,rltj->rtkl", products, basis)
        return tf.cast(forms, gpflow.default_float())

    def _factorise(
        self, layer: GPLayer, inputs: tf.Tensor, prior: tf.Tensor, forms: tf.Tensor
    ) -> tf.Tensor:
        # What q takes is nearly the prior, what it adds may be many times as much; both are rounded.
        scale = tf.linalg.diag_part(prior) + tf.abs(tf.linalg.diag_part(forms))
        eps, M = float(np.finfo(self._dtype).eps), layer.num_inducing
        jitter = self._jitter + tf.stop_gradient((self._num_samples + M) * eps * scale)
        return layer.factorise_joint(prior + forms, inputs, M, jitter)

    def _by_point(self, x: tf.Tensor) -> tf.Tensor:
        """[S K, N, ...] as [S N, K, ...]."""
        K, N = self._num_samples, tf.shape(x)[1]
        tail = x.shape[2:]
        x = tf.reshape(x, [-1, K, N, *tail])
        order = [0, 2, 1, *range(3, x.shape.rank)]
        return tf.reshape(tf.transpose(x, order), [-1, K, *tail])
