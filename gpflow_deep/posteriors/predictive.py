"""The cached predictive posterior of a deep GP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, Module
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType

from ..layers import Layer
from .mixture import Mixture
from .mixture_predictor import MixturePredictor

__all__ = ["DeepGPPosterior"]


class DeepGPPosterior(MixturePredictor, Module):
    """
    Predictions of a deep GP with the factorisations of K_MM and the covariance of the inducing outputs
    computed once. It has all the predictions of the model, and GPflow's ``fused_predict_f`` and
    ``update_cache``.

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
