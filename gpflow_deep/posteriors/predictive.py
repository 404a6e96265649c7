"""The cached predictive posterior of a deep GP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, Module, Parameter, RegressionData
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType

from ..layers import Layer
from ..numerics.compiled import compiled
from ..numerics.parts import in_parts, part_size
from ..validation import check_positive_integer, check_seed
from .condensing import learn_draws
from .mixture import Mixture, Noise
from .mixture_predictor import MixturePredictor

__all__ = ["DeepGPPosterior"]

_MOST_ROWS = 2000  # that draws are learned by: they are few numbers


class DeepGPPosterior(MixturePredictor, Module):
    """
    Predictions of a deep GP with the factorisations of K_MM and the covariance of the inducing outputs
    computed once. It has all the predictions of the model, and GPflow's ``fused_predict_f`` and
    ``update_cache``; :meth:`condense` makes them of few components. From the second time on that a marginal
    prediction of the cache is asked for, it is compiled, once for all numbers of points: it costs a second
    then, and less than a tenth of the time afterwards.

    What is put in the place of the model's kernels, mean functions, inducing variables or their parameters
    counts in full only from ``update_cache`` on, as new values of them do. Without a cache it counts at once,
    as does, in any case, what is put in the place of the likelihood, its numbers or its parameters.

    :param model: the deep GP.
    :param precompute_cache: ``TENSOR``; ``VARIABLE`` to keep the cache in variables, which
        ``update_cache`` can change in place, also under a compiled prediction; or ``NOCACHE``.
    :raises TypeError: no model of this package.
    :raises ValueError: where it is none of these kinds of cache.
    """

    def __init__(
        self,
        model: MixturePredictor,
        precompute_cache: PrecomputeCacheType | None = PrecomputeCacheType.TENSOR,
    ) -> None:
        super().__init__()
        if not isinstance(model, MixturePredictor):
            raise TypeError(f"model: expected one of this package, got {type(model).__name__}.")
        self.model = model
        self._precompute_cache = PrecomputeCacheType.NOCACHE
        self.cache: Any = None
        self._draws: list[np.ndarray] | None = None
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

    @property
    def _own_moments(self) -> MixturePredictor | None:
        return self.model._own_moments

    @property
    def _input_dim(self) -> int | None:
        return self.model._input_dim

    @property
    def _width(self) -> int:
        return self.model._width

    def _as_inputs(self, X: InputData, name: str = "Xnew") -> tf.Tensor:
        return self.model._as_inputs(X, name)

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        """
        Compute the cache again, after the model has changed; draws learned for the old one are forgotten.

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
        self._graphs, self._draws = _Graphs(), None
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

    def condense(
        self,
        data: RegressionData,
        num_components: int = 8,
        *,
        num_reference: int = 1024,
        steps: int = 300,
        seed: int = 0,
    ) -> float:
        """
        Make marginal predictions mixtures of few components, by draws through the hidden layers that are
        learned: those with which some data have nearly the log densities that many draws give them. Eight
        learned ones are about as near to that as thirty of those that predictions have by default, which
        fill the space evenly, or as a hundred random ones; away from the data they are as good as any eight.

        >>> model = gd.models.DeepGP(
        ...     gd.layers.build_layers(X, hidden_dims=(1,), num_inducing=5), gpflow.likelihoods.Gaussian()
        ... )
        >>> posterior = model.posterior()
        >>> difference = posterior.condense((X, Y), num_components=4, num_reference=64, steps=10)
        >>> posterior.predict_y_mixture(X).log_weights.shape
        TensorShape([4])

        :param data: inputs [N, D] and targets [N, P], such as those of training; 2000 of many are used.
        :param num_components: S.
        :param num_reference: components of the mixtures that are to be matched.
        :param steps: of Adam.
        :param seed: of the minibatches.
        :return: the root mean square of the difference of the data's log densities.
        :raises TypeError: a model whose predictions do not come of such draws.
        :raises ValueError: likewise, or a wrong argument.
        """
        for number, name in (
            (num_components, "num_components"),
            (num_reference, "num_reference"),
            (steps, "steps"),
        ):
            check_positive_integer(number, name)
        if not self.model._draws_can_be_learned:
            raise TypeError(
                "condense: expected the posterior of a DeepGP of several layers without sites, whose"
                f" components are draws through hidden layers, got that of {type(self.model).__name__}."
            )
        inputs, Y = self._check_observations(data)
        X = self._as_inputs(inputs)
        if X.shape.rank != 2 or len(X) != len(Y) or not len(X):
            raise ValueError(
                f"data: expected inputs [N, D] and targets [N, P], got shapes {X.shape} and {Y.shape}."
            )
        rows = np.random.default_rng(check_seed(seed)).permutation(len(X))[:_MOST_ROWS]
        X, Y, prepared = tf.gather(X, rows), tf.gather(Y, rows), self._prepare()

        def log_density(draws: Sequence[tf.Tensor] | None) -> Callable[..., tuple[tf.Tensor]]:
            given = (None, draws) if draws else (num_reference, None)
            prediction = self.model._prediction(prepared, *given)
            return partial(self._part, "log density", prediction, False)

        size = part_size(num_reference, self._width)
        (wanted,) = in_parts(log_density(None), [X, Y], size, 1)
        learned, difference = learn_draws(
            lambda X, Y, draws: log_density(draws)(X, Y)[0],
            X,
            Y,
            wanted,
            self.model._prediction(prepared, num_components, None)[1],
            steps,
            seed,
        )
        self._draws, self._graphs = learned, _Graphs()
        return difference

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

    def _prediction(self, prepared: Any, num_samples: int | None, noise: Noise) -> Any:
        if num_samples is None and noise is None and self._draws is not None:
            noise = [tf.constant(z) for z in self._draws]
        return self.model._prediction(prepared, num_samples, noise)

    def _mixture(self, *args: Any) -> Mixture:
        return self.model._mixture(*args)

    def _joint_mixture(self, *args: Any) -> Mixture:
        return self.model._joint_mixture(*args)

    def _sample_f(self, *args: Any) -> tf.Tensor:
        return self.model._sample_f(*args)

    def _in_parts(
        self, what: str, noise: Noise, full_output_cov: bool, arrays: Sequence[tf.Tensor]
    ) -> tuple[Callable[..., tuple[tf.Tensor, ...]], int]:
        # Without a cache a graph would hold on to what the model was when it was traced.
        by_the_model = self._precompute_cache is PrecomputeCacheType.NOCACHE
        if noise is not None or by_the_model or not tf.executing_eagerly():
            return super()._in_parts(what, noise, full_output_cov, arrays)
        specs = tuple(tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in arrays)
        # What makes a prediction besides the cache, so that what has another of it is traced anew.
        likelihood = self.likelihood, _traced_values(self.likelihood)
        key = what, full_output_cov, specs, *likelihood, *self.model._settings_of_predictions
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


def _traced_values(likelihood: Likelihood) -> tuple[Any, ...]:
    """What a graph holds on to as it was when it was traced: numbers, functions, and which parameters."""
    parts: list[tf.Module] = [likelihood]
    found: list[tuple[Any, ...]] = []
    for part in parts:
        for name, values in vars(part).items():
            if name.startswith("_self_"):  # TensorFlow's own books
                continue
            for value in _leaves(values):
                if isinstance(value, tf.Tensor) and not tf.is_symbolic_tensor(value):
                    value = value.numpy()
                if isinstance(value, (int, float, str, np.generic, FunctionType)):
                    found.append((name, value))
                elif isinstance(value, np.ndarray):
                    found.append((name, value.shape, value.tobytes()))
                elif isinstance(value, Parameter):
                    found.append((name, value.unconstrained_variable.ref()))
                elif isinstance(value, tf.Variable):
                    found.append((name, value.ref()))
                elif isinstance(value, tf.Module) and value not in parts:
                    parts.append(value)
    return tuple(found)


def _leaves(value: Any) -> Iterator[Any]:
    """What lists, tuples and dictionaries in each other hold."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


class _Graphs:
    """Compiled predictions by what they are of: a copy of a posterior, and what is saved of it, has none."""

    def __init__(self) -> None:
        self.known: dict[Any, tuple[Any, int]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Graphs:
        return _Graphs()

    def __reduce__(self) -> tuple[type[_Graphs], tuple[()]]:
        return _Graphs, ()
