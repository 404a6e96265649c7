"""Draws of whole functions: callable, differentiable, linear in the number of points."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import gpflow
import tensorflow as tf
from gpflow.base import Module, TensorType

from ..kernels.fourier import PriorFunctions
from ..layers import GPLayer
from ..layers.covariances import has_values_at_points, split_gps
from ..numerics.draws import as_seed
from ..numerics.linalg import in_sets, rows_times, solve_rows
from ..numerics.parts import in_parts, part_size
from ..posteriors.base import Conditional
from ..validation import as_real_tensor, check_positive_integer
from .passage import Passage, walk

if TYPE_CHECKING:
    from .base import DeepGPModel

__all__ = [
    "DrawnFunctions",
    "FunctionDraws",
    "FunctionPassage",
    "LayerFunctions",
    "SamplesFunctions",
    "drawn",
    "through_own_points",
]


class DrawnFunctions(NamedTuple):
    """A function for each layer."""

    make_passage: Callable[[], Passage]
    """Of points through them."""

    width: int
    """How many numbers they make of a point on the way."""


class SamplesFunctions:
    """The part of a model that draws whole functions."""

    @tf.autograph.experimental.do_not_convert
    def sample_functions(
        self, num_samples: int, seed: TensorType | None = None, num_features: int = 1000
    ) -> FunctionDraws:
        """
        Draws of whole functions from the posterior, through all layers (Wilson et al. 2020): each is the same
        function at every call, differentiable in its inputs, at a price that is linear in their number. What
        Thompson sampling needs, and plots of single functions; for draws at points that are all known,
        ``predict_f_samples`` is exact.

        The inducing outputs of all layers are drawn together from the posterior. What they leave open is the
        prior's, of which a draw is approximately Gaussian: a sum of waves.

        >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
        >>> model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.01))
        >>> f = model.sample_functions(3, seed=[0, 1])
        >>> f(X).shape
        TensorShape([3, 20, 1])
        >>> bool(tf.reduce_all(tf.abs(f(X[:5]) - f(X)[:, :5]) < 1e-12))
        True

        :param num_samples: number of functions, S.
        :param seed: ``None`` for new ones at each call, or an integer, or two, of which they are a pure
            function.
        :param num_features: frequencies of the waves of each draw from a layer's prior, a cosine and a sine
            each. Mean and covariance of a layer's functions over many draws do not depend on it; their
            tails do, and through them the variance of what further layers make of their values.
        :raises NotImplementedError: where the model has no posterior over functions, or a kernel's spectral
            density is not known, or inducing variables are no values at inputs.
        :raises RuntimeError: inside a compiled function. What is drawn can be called there.
        """
        S = check_positive_integer(num_samples, "num_samples")
        F = check_positive_integer(num_features, "num_features")
        seed = as_seed(seed)
        if not tf.executing_eagerly():
            raise RuntimeError(
                "sample_functions: expected a call outside of compiled functions, as the draws keep a copy of"
                " the model; draw before, and call what was drawn inside."
            )
        # Their own copy: what trains the model later does not change them.
        model: Any = copy.deepcopy(self, _compiled_attributes(self))
        return FunctionDraws(model, S, seed, F)

    def _draw_layer_functions(
        self, num_samples: int, seed: tf.Tensor, num_features: int
    ) -> DrawnFunctions:
        """Draw a function for each layer."""
        raise NotImplementedError(
            "sample_functions: expected a model with a posterior over whole functions, got"
            f" {type(self).__name__}, whose points have inducing outputs, sites, latent variables or noise of"
            " their own."
        )


def _compiled_attributes(model: Any) -> dict[int, Any]:
    """For the memo of a copy: what users compiled and keep with the model cannot be copied once traced."""
    attributes = [value for part in (model, *model.submodules) for value in vars(part).values()]
    compiled = tf.types.experimental.PolymorphicFunction
    return {id(value): value for value in attributes if isinstance(value, compiled)}


class FunctionDraws(Module):
    """
    S functions that :meth:`DeepGPModel.sample_functions` drew. They do not change when the model does.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> f = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.01)).sample_functions(3)
    >>> isinstance(f, gd.models.FunctionDraws), f.num_samples
    (True, 3)
    """

    def __init__(
        self, model: DeepGPModel, num_samples: int, seed: tf.Tensor, num_features: int
    ) -> None:
        super().__init__()
        self.num_samples = num_samples
        self._model = model
        self._drawn = model._draw_layer_functions(num_samples, seed, num_features)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, X: TensorType) -> tf.Tensor:
        """
        The functions' values.

        :param X: inputs [N, D] of all functions, or [S, N, D] of each its own.
        :return: [S, N, P].
        :raises ValueError: for inputs of another shape.
        """
        X = as_real_tensor(X, "X")
        rank = X.shape.rank
        if rank not in (2, 3):
            raise ValueError(f"X: expected inputs [N, D] or [S, N, D], got shape {X.shape}.")
        if rank == 3 and X.shape[0] not in (None, self.num_samples):
            raise ValueError(
                f"X: expected {self.num_samples} sets of inputs, one for each function, got {X.shape[0]}."
            )
        model, rows = self._model, tf.reshape(X, [-1, X.shape[-1] or tf.shape(X)[-1]])
        rows = model._as_matrix(rows, "X")
        sets = tf.shape(X)[0] if rank == 3 else 1
        by_point = tf.reshape(rows, [sets, tf.shape(X)[-2], rows.shape[-1]])
        by_point = tf.transpose(by_point, [1, 0, 2])  # [N, S or 1, D]

        def values(points: tf.Tensor) -> tuple[tf.Tensor]:
            layers, passage = model._random_layers, self._drawn.make_passage()
            inputs = tf.transpose(points, [1, 0, 2])
            return (model._draws(walk(layers, passage, inputs, [None] * len(layers))[-1]),)

        size = part_size(self.num_samples, max(model._width, self._drawn.width))
        return in_parts(values, [by_point], size, 1, axis=1)[0]


class LayerFunctions(Module):
    """
    Draws of the functions of one layer, given draws of its inducing outputs: a draw of the prior, moved by
    what its values at the inducing inputs miss (Matheron's rule; Wilson et al. 2020, Eq. 13).

    :param factor: Cholesky factor of K_MM plus jitter [M, M], [T, M, M] or [S or 1, K, M, M].
    :param whitened: draws of the whitened inducing outputs [S, T, M].
    :param seed: two integers.
    :param inducing_inputs: [S or 1, M, D], where they are not the layer's own.
    """

    def __init__(
        self,
        layer: GPLayer,
        factor: tf.Tensor,
        whitened: tf.Tensor,
        seed: tf.Tensor,
        num_features: int,
        inducing_inputs: tf.Tensor | None = None,
    ) -> None:
        super().__init__()
        S, T, M = whitened.shape
        self._layer = layer
        self._inducing_inputs = inducing_inputs
        at = [inducing_inputs] if inducing_inputs is not None else _own_inducing_inputs(layer)
        seeds = tf.random.experimental.stateless_split(seed, 2)
        self._prior = PriorFunctions(
            layer.kernel, T, int(at[0].shape[-1]), S, num_features, seeds[0]
        )
        values = [tf.linalg.matrix_transpose(self._prior(Z)) for Z in at]  # [S, T, M]
        prior = values[0]
        if len(values) > 1:  # every GP has its own
            prior = tf.stack([value[:, t] for t, value in enumerate(values)], axis=1)
        # The factor is that of values with the jitter's noise.
        noise = tf.random.stateless_normal([S, T, M], seeds[1], dtype=prior.dtype)
        jitter = tf.sqrt(tf.cast(gpflow.config.default_jitter(), prior.dtype))
        factor = in_sets(factor)
        missing = whitened - solve_rows(factor, prior + jitter * noise)
        self._coefficients = solve_rows(factor, missing, transpose=True)

    @property
    def width(self) -> int:
        """How many numbers it makes of a point on the way."""
        return max(self._prior.width, self._layer.num_latent_gps * self._coefficients.shape[-1])

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Of inputs [S or 1, N, D] the functions' values [S, N, T]."""
        layer = self._layer
        if self._inducing_inputs is None:
            K = layer.inducing_covariance(inputs)
        else:
            K, _ = layer.covariances(inputs, self._inducing_inputs)
        update = tf.linalg.matrix_transpose(rows_times(self._coefficients, K))
        return layer.latent_mean(inputs) + self._prior(inputs) + update


def _own_inducing_inputs(layer: GPLayer) -> list[tf.Tensor]:
    """Of all GPs, [1, M, D], or of each its own."""
    pairs = split_gps(layer.own_inducing_variable, layer.kernel)
    for one, kernel in pairs:
        if not has_values_at_points(one, kernel):
            raise NotImplementedError(
                f"inducing_variable: expected InducingPoints in {layer.name} for draws of whole functions,"
                f" got {type(one).__name__}."
            )
    different = {id(one): one for one, _ in pairs}
    used = [one for one, _ in pairs] if len(different) > 1 else list(different.values())
    return [tf.convert_to_tensor(one.Z)[None] for one in used]


def through_own_points(
    layers: Sequence[GPLayer],
    factors: Sequence[tf.Tensor],
    whitened: Sequence[tf.Tensor],
    seed: tf.Tensor,
    num_features: int,
) -> DrawnFunctions:
    """
    Functions of layers with inducing variables of their own.

    :param factors: of each layer, what :meth:`GPLayer.factorise` returned.
    :param whitened: draws [S, T, M] of its whitened inducing outputs.
    """
    seeds = tf.random.experimental.stateless_split(seed, len(layers))
    return drawn(
        [
            LayerFunctions(layer, factor, v, seeds[index], num_features)
            for index, (layer, factor, v) in enumerate(zip(layers, factors, whitened))
        ]
    )


def drawn(functions: Sequence[LayerFunctions]) -> DrawnFunctions:
    """Of layers that have nothing between them."""
    width = max(function.width for function in functions)
    return DrawnFunctions(partial(FunctionPassage, functions), width)


class FunctionPassage(Passage):
    """Points on their way through functions that were drawn."""

    def __init__(self, functions: Sequence[LayerFunctions]) -> None:
        self._remaining = iter(functions)

    def condition(
        self, layer: GPLayer, inputs: tf.Tensor, below: Conditional | None
    ) -> Conditional:
        del layer, below
        self._values = next(self._remaining)(inputs)
        return Conditional(self._values, tf.zeros_like(self._values))

    def sample(self, noise: TensorType | None) -> tf.Tensor:
        del noise
        return self._values
