"""
Approximate posteriors over the weights of one Bayesian layer: what they may take from its inducing inputs,
and from the draw of its prior precision.

Shapes: S draws, T units with D weights each, M inducing points, N points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Module, Parameter

from ..layers.bayesian.designs import Design, ExplicitDesign
from ..layers.bayesian.precisions import Precision
from ..numerics.bijectors import in_units_of
from ..numerics.linalg import cast_all
from ..validation import check_flag, check_positive_integer, check_positive_number
from .pseudo_observations import LOG_SCALE, PseudoObservations
from .weight_space import WhiteWeights

__all__ = [
    "FactorisedWeights",
    "GlobalInducingWeights",
    "LocalInducingWeights",
    "PriorWeights",
    "WeightConditional",
    "WeightPosterior",
    "WeightSpec",
]


class WeightSpec(NamedTuple):
    """
    What the posterior of a layer's weights must know of the layer.

    >>> spec = gd.posteriors.WeightSpec(num_outputs=3, fan_in=4, num_inducing=5)
    >>> spec.num_positions
    1
    """

    num_outputs: int  # T
    fan_in: int  # D
    num_inducing: int = 0  # M; 0 where there are no inducing inputs
    num_positions: int = 1  # of the output of one point, at each of which the units have an output
    seed: int = 0  # of initial values
    is_convolution: bool = False  # which may have one position alone

    @property
    def convolves(self) -> bool:
        """Whether the units have their outputs at positions."""
        return self.is_convolution or self.num_positions > 1


class WeightConditional(Protocol):
    """q(weights | inducing inputs, prior precision): a named tuple of tensors."""

    def sample(self, noise: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Draws of the weights [S, T, D] from standard normals of the posterior's ``noise_shapes``."""

    def log_ratio(self, weights: tf.Tensor, noise: tuple[tf.Tensor, ...] = ()) -> tf.Tensor:
        """
        log p - log q of draws [S, T, D], both given the prior precision: [S].

        :param noise: what the draws were drawn by, where it is known: it saves solving for it.
        """

    def prior_kl(self) -> tf.Tensor:
        """KL divergence from the prior of that precision: [S], or [1] for all draws."""

    def moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance [S, N, T] of the units' outputs for inputs [S or 1, N, D]."""

    def joint_moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Likewise with the covariance over the points: [S, 1 or T, N, N]."""


class WeightPosterior(Module, ABC):
    """
    A posterior over the weights of one layer.

    >>> spec = gd.posteriors.WeightSpec(num_outputs=3, fan_in=4)
    >>> q = gd.posteriors.PriorWeights(spec)
    >>> isinstance(q, gd.posteriors.WeightPosterior)
    True
    >>> q.noise_shapes(num_samples=2)
    [[2, 3, 4]]

    :param spec: of the layer.
    """

    uses_inducing_inputs = False
    """Whether it depends on the layer's inducing inputs."""

    def __init__(self, spec: WeightSpec, *, name: str | None = None) -> None:
        super().__init__(name=name)
        _check_spec(spec)
        self.num_outputs = check_positive_integer(spec.num_outputs, "num_outputs")
        self.fan_in = check_positive_integer(spec.fan_in, "fan_in")

    def noise_shapes(self, num_samples: int | None) -> list[list[int | None]]:
        """Of the standard normals that a draw of the weights takes."""
        return [[num_samples, self.num_outputs, self.fan_in]]

    @abstractmethod
    def condition(self, design: Design | None, precision: Precision) -> WeightConditional:
        """
        The posterior given the layer's inducing inputs and a draw of its prior precision.

        :param design: the design matrix at the inducing inputs, where the posterior uses them.
        """


def _check_spec(spec: Any) -> None:
    if not isinstance(spec, WeightSpec):
        raise TypeError(f"spec: expected a WeightSpec, got {spec!r}.")


class PriorWeights(WeightPosterior):
    """
    The prior itself: random features that the data do not touch.

    >>> spec = gd.posteriors.WeightSpec(num_outputs=3, fan_in=4)
    >>> gd.posteriors.PriorWeights(spec).trainable_variables
    ()
    """

    def condition(self, design: Design | None, precision: Precision) -> WeightConditional:
        del design
        return _Unwhitened(
            precision, _StandardNormal(tf.zeros([self.num_outputs], gpflow.default_float()))
        )


class FactorisedWeights(WeightPosterior):
    """
    Independent Gaussian weights, whatever the inducing inputs and the prior precision are: mean-field
    variational inference (Blundell et al. 2015).

    >>> spec = gd.posteriors.WeightSpec(num_outputs=3, fan_in=4)
    >>> q = gd.posteriors.FactorisedWeights(spec, initial_scale=0.1)
    >>> sorted(tuple(v.shape) for v in q.trainable_variables)
    [(3, 4), (3, 4)]

    :param spec: of the layer.
    :param local_reparameterisation: draw in training each point's outputs, rather than the weights (Kingma,
        Salimans & Welling 2015). For that no layer above may have a posterior that uses inducing inputs:
        these need the same weights. The outputs of a convolution are drawn independently at all positions,
        which share their weights: there the expected log-likelihood is an approximation, as in the paper's
        code, mostly too large, and the objective no bound.
    :param initial_scale: of the weights' standard deviations, in units of 1/sqrt(D); the means start as draws
        from N(0, 1/D).
    """

    def __init__(
        self,
        spec: WeightSpec,
        *,
        local_reparameterisation: bool = False,
        initial_scale: float = 0.05,
        name: str | None = None,
    ) -> None:
        super().__init__(spec, name=name)
        self.local_reparameterisation = check_flag(
            local_reparameterisation, "local_reparameterisation"
        )
        initial_scale = check_positive_number(initial_scale, "initial_scale")
        shape = [self.num_outputs, self.fan_in]
        # In units of 1/sqrt(D), so that all parameters are of order one (Ober & Aitchison 2021, Appendix G).
        self.scaled_mean = Parameter(
            np.random.default_rng(spec.seed).standard_normal(shape), dtype=gpflow.default_float()
        )
        self.log_variance = Parameter(
            np.full(shape, 2.0 * np.log(initial_scale)),
            dtype=gpflow.default_float(),
            transform=in_units_of(LOG_SCALE),
        )

    def condition(self, design: Design | None, precision: Precision) -> FactorisedConditional:
        del design
        mean = self.scaled_mean / np.sqrt(self.fan_in)
        variance = tf.exp(self.log_variance) / self.fan_in
        return FactorisedConditional(
            precision,
            precision.diagonal(self.fan_in),
            precision.log_det_root(self.fan_in),
            mean[None],
            variance[None],
        )


class FactorisedConditional(NamedTuple):
    """Independent Gaussian weights, beside the prior of one precision P = G G^T."""

    precision: Precision
    diagonal: tf.Tensor  # of P: [S, D]
    log_det_root: tf.Tensor  # log |G|: [S]
    mean: tf.Tensor  # [1, T, D]
    variance: tf.Tensor  # [1, T, D]

    def sample(self, noise: tuple[tf.Tensor, ...]) -> tf.Tensor:
        return self.mean + tf.sqrt(self.variance) * noise[0]

    def log_ratio(self, weights: tf.Tensor, noise: tuple[tf.Tensor, ...] = ()) -> tf.Tensor:
        if noise:
            normals = tf.square(noise[0])
        else:
            normals = tf.square(weights - self.mean) / self.variance
        white = tf.square(self.precision.whiten_weights(weights))
        return 0.5 * tf.reduce_sum(normals - white, axis=[1, 2]) + self._log_det()

    def prior_kl(self) -> tf.Tensor:
        squares = tf.square(self.precision.whiten_weights(self.mean))
        traces = self.diagonal[:, None] * self.variance
        return 0.5 * tf.reduce_sum(squares + traces - 1.0, axis=[1, 2]) - self._log_det()

    def _log_det(self) -> tf.Tensor:
        """Of the posterior's standard deviations over the prior's."""
        own = 0.5 * tf.reduce_sum(tf.math.log(self.variance), axis=[1, 2])
        return own + self.mean.shape[1] * self.log_det_root

    def moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean = tf.matmul(features, self.mean, transpose_b=True)
        return mean, tf.matmul(tf.square(features), self.variance, transpose_b=True)

    def joint_moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scaled = features[:, None] * tf.sqrt(self.variance)[:, :, None]  # [S, T, N, D]
        mean = tf.matmul(features, self.mean, transpose_b=True)
        return mean, tf.matmul(scaled, scaled, transpose_b=True)


class GlobalInducingWeights(WeightPosterior):
    """
    The prior times a Gaussian pseudo-likelihood of the layer's outputs at its inducing inputs, which come
    through the layers below: Bayesian linear regression in every layer (Ober & Aitchison 2021, Eqs. 8 to 11).

    >>> spec = gd.posteriors.WeightSpec(num_outputs=3, fan_in=4, num_inducing=5)
    >>> gd.posteriors.GlobalInducingWeights(spec, precision="separate").uses_inducing_inputs
    True

    :param spec: of the layer; its number of inducing points is M.
    :param precision: "shared", one precision for each inducing point (at all positions of an image);
        "separate", each unit its own; or "full", a matrix [M, M] for all units. At the start the
        pseudo-observations are standard normal, and of precision e^-4.
    :raises ValueError: without inducing points.
    """

    uses_inducing_inputs = True

    def __init__(
        self,
        spec: WeightSpec,
        *,
        precision: str = "shared",
        name: str | None = None,
    ) -> None:
        super().__init__(spec, name=name)
        if precision == "full" and spec.convolves:
            raise ValueError("precision: expected 'shared' or 'separate' for images, got 'full'.")
        if not spec.num_inducing:
            raise ValueError(f"inducing_inputs: expected some for {type(self).__name__}, got None.")
        self.observations = PseudoObservations(
            spec.num_outputs,
            spec.num_inducing,
            precision=precision,
            num_positions=spec.num_positions,
            seed=spec.seed,
        )
        self._in_function_space = not spec.convolves and spec.num_inducing < spec.fan_in

    def noise_shapes(self, num_samples: int | None) -> list[list[int | None]]:
        shapes = super().noise_shapes(num_samples)
        if self._in_function_space:
            shapes.append([num_samples, self.num_outputs, self.observations.num_inducing])
        return shapes

    def condition(self, design: Design | None, precision: Precision) -> WeightConditional:
        if design is None:
            raise ValueError(f"design: expected one for {type(self).__name__}, got None.")
        return _Unwhitened(precision, self.observations.condition_weights(design, precision))


class LocalInducingWeights(GlobalInducingWeights):
    """
    Likewise with inducing inputs of the layer's own, in place of those that come through the layers below: D
    of them, the constant's column included, standard normal at the start. For dense layers.

    A network of them starts as a function that knows nothing of the data. Let its noise variance start near
    the mean square of its residuals: with less, the first gradients are so large that Adam's running mean of
    squares keeps it from moving for thousands of steps.

    >>> spec = gd.posteriors.WeightSpec(num_outputs=3, fan_in=4, num_inducing=5)
    >>> gd.posteriors.LocalInducingWeights(spec).uses_inducing_inputs  # it has its own
    False

    :param spec: of the layer.
    :param precision: see :class:`GlobalInducingWeights`.
    :raises ValueError: for a convolution.
    """

    uses_inducing_inputs = False

    def __init__(
        self,
        spec: WeightSpec,
        *,
        precision: str = "shared",
        name: str | None = None,
    ) -> None:
        _check_spec(spec)
        if spec.convolves:
            raise ValueError(
                "posterior: expected another one than LocalInducingWeights for a convolution."
            )
        spec = spec._replace(num_inducing=spec.fan_in)
        super().__init__(spec, precision=precision, name=name)
        self.inducing_inputs = Parameter(
            np.random.default_rng([spec.seed, 1]).standard_normal([self.fan_in] * 2),
            dtype=gpflow.default_float(),
        )

    def condition(self, design: Design | None, precision: Precision) -> WeightConditional:
        del design
        own = ExplicitDesign(tf.convert_to_tensor(self.inducing_inputs)[None, None])
        return super().condition(own, precision)


class _Unwhitened(NamedTuple):
    """Weights whose white ones have a posterior, perhaps of a wider dtype than draws and points."""

    precision: Precision
    white: WhiteWeights

    def sample(self, noise: tuple[tf.Tensor, ...]) -> tf.Tensor:
        white = self.white.sample(cast_all(noise, self._dtype()))
        return self.precision.unwhiten(tf.cast(white, noise[0].dtype))

    def log_ratio(self, weights: tf.Tensor, noise: tuple[tf.Tensor, ...] = ()) -> tf.Tensor:
        white = tf.cast(self.precision.whiten_weights(weights), self._dtype())
        return self.white.log_ratio(white, cast_all(noise, white.dtype))

    def prior_kl(self) -> tf.Tensor:
        return self.white.prior_kl()

    def moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self._white(features.dtype).moments(self.precision.whiten(features))

    def joint_moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self._white(features.dtype).joint_moments(self.precision.whiten(features))

    def _dtype(self) -> tf.DType:
        return tf.nest.flatten(self.white)[0].dtype

    def _white(self, dtype: tf.DType) -> WhiteWeights:
        white: WhiteWeights = cast_all(self.white, dtype)
        return white


class _StandardNormal(NamedTuple):
    """White weights as they are under the prior."""

    units: tf.Tensor  # [T], for their number

    def sample(self, noise: tuple[tf.Tensor, ...]) -> tf.Tensor:
        return noise[0]

    def log_ratio(self, weights: tf.Tensor, noise: tuple[tf.Tensor, ...] = ()) -> tf.Tensor:
        return tf.zeros_like(weights[:, 0, 0])

    def prior_kl(self) -> tf.Tensor:
        return tf.zeros([1], gpflow.default_float())

    def moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        variance = tf.reduce_sum(tf.square(features), axis=-1, keepdims=True)
        variance = tf.tile(variance, [1, 1, self.units.shape[0]])
        return tf.zeros_like(variance), variance

    def joint_moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean, _ = self.moments(features)
        return mean, tf.matmul(features, features, transpose_b=True)[:, None]
