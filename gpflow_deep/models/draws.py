"""Models whose objective takes standard normal draws, which a caller can fix."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import chain, count
from typing import Any

import tensorflow as tf
from gpflow.base import RegressionData, TensorType

from ..numerics.compiled import compiled
from ..numerics.draws import standard_normals
from ..numerics.warning import warn_of_new_draws
from ..validation import check_positive_integer, check_seed
from .base import DeepGPModel
from .closures import check_source, over_batches

__all__ = ["DrawingDeepGPModel", "draws_are_new", "draws_of_seed"]

#: Of the draws of one evaluation of a loss, each its own; None for new ones.
_SEEDS: ContextVar[Iterator[TensorType] | None] = ContextVar("seeds", default=None)


@contextmanager
def draws_of_seed(seed: TensorType) -> Iterator[None]:
    """
    For a while draws that nobody asks of a seed are of this one: those of one evaluation of a loss, which a
    user's class may compute in its own way, without knowing of them.

    :param seed: two integers. The first draws are those of it, later ones others.
    """
    later = (tf.random.experimental.stateless_fold_in(seed, i) for i in count(1))
    token = _SEEDS.set(chain([seed], later))
    try:
        yield
    finally:
        _SEEDS.reset(token)


def draws_are_new(noise: Any) -> bool:
    """Whether an objective that is given these draws, or ``None``, has others the next time."""
    return noise is None and _SEEDS.get() is None


class DrawingDeepGPModel(DeepGPModel):
    """A model whose objective takes standard normal draws: new ones, or those of a seed."""

    @abstractmethod
    def _training_shapes(
        self, num_samples: int, num_data: TensorType
    ) -> list[list[TensorType | None]]:
        """Of the draws that one evaluation of the objective takes."""

    @property
    def _num_training_draws(self) -> int:
        """S of the objective."""
        return self.num_samples

    @tf.autograph.experimental.do_not_convert
    def draw_noise(
        self,
        num_data: TensorType,
        num_samples: int | None = None,
        seed: TensorType | None = None,
    ) -> list[tf.Tensor]:
        """
        The standard normal draws that one evaluation of the objective takes.

        :param num_data: number of points N of the batch.
        :param num_samples: S; the model's own by default. Of a sampled model it is that of all chains
            together, and all draws of the first chain come first.
        :param seed: ``None`` for TensorFlow's global generator, or an integer, or two, of which the draws
            are a pure function.
        :return: [S, N, T_l] for each layer that training samples: the hidden ones, and the last one where a
            global inducing model does not integrate it out. Then, where training samples inducing outputs
            too, [S, T_l, M_l]: for each layer (``marginalisation="monte_carlo"``), or for each sampled layer
            of a global inducing model, once or, for pseudo-observations, twice (of the prior and of the
            pseudo-noise). None where points travel by sites. Of a network of weights: [S, N, T_l] for each
            layer with local reparameterisation, and for GPs on top that are sampled; then for each layer what
            its prior takes for a draw of the precision, if it is random, and where its weights are sampled
            [S, T_l, D_l], D_l weights a unit, and once more [S, T_l, M] if there are fewer inducing points
            than these.
        """
        if not tf.is_tensor(num_data):
            num_data = check_positive_integer(num_data, "num_data")
        S = self._num_training_draws
        if num_samples is not None:
            S = check_positive_integer(num_samples, "num_samples")
        shapes = self._training_shapes(S, num_data)
        seeds = _SEEDS.get()
        if seed is None and seeds is not None:
            seed = next(seeds)
        if seed is None and shapes:
            warn_of_new_draws()
        return standard_normals(shapes, seed)

    @tf.autograph.experimental.do_not_convert
    def log_posterior_density(self, data: RegressionData, noise: Any = None) -> tf.Tensor:
        """
        Objective and log prior density of the parameters: the target of a Hamiltonian sampler of these,
        through ``gpflow.optimizers.SamplingHelper``.

        It is a function of the parameters, as such a sampler needs: the draws are those of the model's
        ``seed``, the same at every call. The more of them (``num_samples``), the nearer it is to what
        training, by :meth:`training_loss`, has new draws of at every step.

        :param data: inputs [N, D] and targets [N, P].
        :param noise: the draws of :meth:`draw_noise`, in place of these.
        """
        given = {} if noise is None else {"noise": noise}
        with draws_of_seed([self.seed, 0]):
            return super().log_posterior_density(data, **given)

    def training_loss_closure(
        self, data: Any, *, compile: bool = True, seed: int | None = None
    ) -> Callable[[], tf.Tensor]:
        if seed is None:
            return super().training_loss_closure(data, compile=compile)
        seed = check_seed(seed)
        check_source(data)

        def loss(data: RegressionData) -> tf.Tensor:
            with draws_of_seed([seed, 0]):
                return self.training_loss(data)

        if isinstance(data, Iterator):
            return over_batches(loss, data, compile)
        return compiled(partial(loss, data)) if compile else partial(loss, data)
