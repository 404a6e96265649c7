"""The cached predictive posterior of a deep GP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, Module
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType

from ..layers import Layer
from ..numerics.compiled import compiled
from .mixture import Mixture, Noise
from .mixture_predictor import MixturePredictor

__all__ = ["DeepGPPosterior"]


class DeepGPPosterior(MixturePredictor, Module):
    """
    Predictions of a deep GP with the factorisations of K_MM and the covariance of the inducing outputs
    computed once. It has all the predictions of the model, and GPflow's ``fused_predict_f`` and
    ``update_cache``. From the second time on that a marginal prediction is asked for, it is compiled, once
    for all numbers of points: it costs a second then, and less than a tenth of the time afterwards.

    :param model: the deep GP.
    :param precompute_cache: ``TENSOR``; ``VARIABLE`` to keep the cache in variables, which
        ``update_cache`` can change in place, also under a compiled prediction; or ``NOCACHE``.
    :raises ValueError: where it is none of them.
    """

    def __init__(
        self,
        model: MixturePredictor,
        precompute_cache: PrecomputeCacheType | None = PrecomputeCacheType.TENSOR,
    ) -> None:
        super().__init__()
        self.model = model
        self._precompute_cache = PrecomputeCacheType.NOCACHE
        self.cache: Any = None
        self._graphs = _Graphs()
        self.update_cache(precompute_cache)

    @property
    def layers(self) -> Sequence[Layer]:  # type: ignore[override]
        """The model's layers."""
        return self.model.layers

    @property
    def likelihood(self) -> Likelihood:  # type: ignore[override]
        """The model's likelihood."""
        return self.model.likelihood

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        """
        Compute the cache again, after the model has changed.

        :param precompute_cache: which kind of cache; the one it has by default.
        """
        if precompute_cache is not None:
            try:
                self._precompute_cache = PrecomputeCacheType(precompute_cache)
            except ValueError:
                kinds = [kind.value for kind in PrecomputeCacheType]
                raise ValueError(
                    f"precompute_cache: expected one of {kinds}, got {precompute_cache!r}."
                ) from None
        self._graphs = _Graphs()
        if self._precompute_cache is PrecomputeCacheType.NOCACHE:
            self.cache = None
            return
        new = self.model._prepare()
        if self._precompute_cache is PrecomputeCacheType.TENSOR:
            self.cache = new
            return
        old = tf.nest.flatten(self.cache)
        if len(old) == len(tf.nest.flatten(new)) and all(isinstance(x, tf.Variable) for x in old):
            for variable, value in zip(old, tf.nest.flatten(new)):
                variable.assign(value)
        else:
            self.cache = tf.nest.map_structure(lambda x: tf.Variable(x, trainable=False), new)

    def fused_predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """:meth:`predict_f` without the cache: what the model predicts as it is now."""
        return self.model.predict_f(Xnew, full_cov, full_output_cov)

    def _prepare(self) -> Any:
        """The cache as tensors; what the model computes where there is none."""
        if self.cache is None:
            return self.model._prepare()
        return tf.nest.map_structure(tf.convert_to_tensor, self.cache)

    def _prediction(self, *args: Any) -> Any:
        return self.model._prediction(*args)

    def _mixture(self, *args: Any) -> Mixture:
        return self.model._mixture(*args)

    def _joint_mixture(self, *args: Any) -> Mixture:
        return self.model._joint_mixture(*args)

    def _sample_f(self, *args: Any) -> tf.Tensor:
        return self.model._sample_f(*args)

    def _in_parts(
        self, what: str, noise: Noise, full_output_cov: bool, arrays: Sequence[tf.Tensor]
    ) -> tuple[Callable[..., tuple[tf.Tensor, ...]], int]:
        if noise is not None or not tf.executing_eagerly():
            return super()._in_parts(what, noise, full_output_cov, arrays)
        specs = tuple(tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in arrays)
        key = what, full_output_cov, specs
        graphs = self._graphs.known
        if key not in graphs:
            part, size = super()._in_parts(what, noise, full_output_cov, arrays)
            graphs[key] = None, size  # a single call is done before it would be traced
            return part, size
        graph, size = graphs[key]
        if graph is None:

            def part(*arrays: tf.Tensor) -> tuple[tf.Tensor, ...]:
                prediction = self._prediction(self._prepare(), None, None)
                return self._part(what, prediction, full_output_cov, *arrays)

            graph = compiled(part, input_signature=specs)
            graphs[key] = graph, size
        return graph, size


class _Graphs:
    """Compiled predictions by what they are of: a copy of a posterior, and what is saved of it, has none."""

    def __init__(self) -> None:
        self.known: dict[Any, tuple[Any, int]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Graphs:
        return _Graphs()

    def __reduce__(self) -> tuple[type[_Graphs], tuple[()]]:
        return _Graphs, ()
