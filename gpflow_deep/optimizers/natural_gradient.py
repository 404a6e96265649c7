r"""
Natural gradients for Gaussian posteriors of any transitive structure.

With q(v) = N(m, L L^T), L zero outside a pattern whose factors form a group, the coordinates d and A of
:math:`m = m_0 + L_0 d, L = L_0 h(A)`, A in the pattern, have a diagonal Fisher matrix: 1 for d and for the
strictly lower entries of A, 2 for its diagonal (Lin, Nielsen, Khan & Schmidt 2021, *Tractable structured
natural-gradient descent using local parameterizations*). Of a loss with the gradients :math:`G_m, G_L` the
natural gradient is so :math:`L^T G_m` and :math:`g = L^T G_L`, cut to the pattern, with its diagonal halved.

A step need only agree with it to first order. The one taken is exact where the loss is quadratic in v: with
:math:`W = I + \gamma \operatorname{sym}(g)`, the precision of the new q in the coordinates of the old, and
c the rows that are coupled with column j,

.. math::
    h_{cj} = W_{cc}^{-1} e_j / \sqrt{e_j^T W_{cc}^{-1} e_j}, \quad
    L \leftarrow L h, \quad m \leftarrow m - \gamma L L^T G_m .

For a full L it is the step of Salimbeni, Eleftheriadis & Hensman (2018), *Natural gradients in practice:
non-conjugate variational inference in Gaussian process models*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import Module, Parameter

from ..posteriors import InducingPosterior
from ..posteriors.free_numbers import FreeNumbers, Positions, layer_free_numbers
from ..validation import check_positive_number, check_share
from .cliques import Batch, Cliques
from .replicas import average_over_replicas

__all__ = ["NaturalGradient", "clipped_quadratic", "closed_form"]

Gamma = float | Callable[[tf.Tensor], Any]

# As for every factorisation here: W decides by its small eigenvalues, and float32 has too few digits.
_FLOAT = tf.float64


class NaturalGradient(tf.Module):
    """
    Natural gradient steps on the Gaussian posterior of a model: any
    :class:`~gpflow_deep.posteriors.InducingPosterior` with a transitive pattern, ``IndependentGaussian``, or
    q_mu and q_sqrt of GPflow's SVGP.

    As GPflow's optimiser it goes with another one for all other parameters: in turns by :meth:`minimize`, or,
    at half the price, from the same gradients by :meth:`apply_gradients`.

    In a replica of `tf.distribute` gradients are averaged over replicas, which so stay equal: each replica's
    loss is to be an estimate of the whole loss, not a share of it. Make model and optimiser in the strategy's
    scope.

    One step of size 1 finds the optimum of a sparse GP's posterior:

    >>> model = gpflow.models.SVGP(
    ...     gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1), X[::4].copy()
    ... )
    >>> gd.optimizers.NaturalGradient(1.0).minimize(
    ...     model.training_loss_closure((X, Y), compile=False), [(model.q_mu, model.q_sqrt)]
    ... )
    >>> best = gpflow.models.SGPR((X, Y), model.kernel, X[::4].copy(), noise_variance=0.1).elbo()
    >>> bool(np.isclose(model.elbo((X, Y)), best))
    True

    :param gamma: the step size in (0, 1], or a function of the number of steps taken, such as a schedule of
        Keras, which may be 0 too.
    :param mean_gamma: the step size of the mean; at most ``gamma`` by default, less where many GPs are not
        linked in q: a step of 1 corrects each for itself what the loss says of all together. Below 2 by
        their number it converges where the loss is quadratic, and 1 by it is the bound.
    :param max_kl: trust region of posteriors over more than one layer, whose loss is not convex: how many
        nats, on average over the inducing outputs, a step may change q by through its covariance, and as many
        through its mean. The divergence through the covariance is kept to second order: of longer steps that
        are cut to the limit it may be some percent above. None: no limit.
    """

    def __init__(
        self,
        gamma: Gamma = 0.1,
        *,
        mean_gamma: Gamma | None = None,
        max_kl: float | None = 0.1,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.gamma = gamma if callable(gamma) else check_share(gamma, "gamma")
        if mean_gamma is not None and not callable(mean_gamma):
            mean_gamma = check_share(mean_gamma, "mean_gamma")
        self.mean_gamma = mean_gamma
        self.max_kl = None if max_kl is None else check_positive_number(max_kl, "max_kl")
        self.iterations = tf.Variable(
            0,
            dtype=tf.int64,
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        self._storage = lru_cache(maxsize=16)(_Storage)

    def __repr__(self) -> str:
        settings = {name: getattr(self, name) for name in ("gamma", "mean_gamma", "max_kl")}
        shown = ", ".join(f"{name}={_describe(value)}" for name, value in settings.items())
        return f"NaturalGradient({shown})"

    def variables_of(self, var_list: Any) -> list[tf.Variable]:
        """
        The variables that this optimiser updates: what gradients are to be taken of, and what no other
        optimiser should.

        :param var_list: as for :meth:`minimize`.
        """
        return list(self._storage(*_gaussians(var_list)).variables)

    @tf.autograph.experimental.do_not_convert
    def minimize(self, loss_fn: Callable[[], tf.Tensor], var_list: Any) -> None:
        """
        One step on a loss.

        :param loss_fn: the loss, a function without arguments.
        :param var_list: a model, its posterior, or (q_mu, q_sqrt) pairs as GPflow's optimiser takes them, one
            a layer, the output layer's last.
        :raises ValueError: where it has no Gaussian posterior, or one whose pattern is not transitive.
        """
        variables = self.variables_of(var_list)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = loss_fn()
        gradients = tape.gradient(
            loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        self.apply_gradients(gradients, var_list)

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        gradients: Sequence[tf.Tensor],
        var_list: Any,
        skip_gradients_aggregation: bool = False,
    ) -> None:
        """
        One step from gradients that are known, such as those of one tape for this and another optimiser.

        :param gradients: of the loss, with respect to what :meth:`variables_of` returns.
        :param var_list: as for :meth:`minimize`.
        :param skip_gradients_aggregation: whether they are averages over replicas already.
        """
        storage = self._storage(*_gaussians(var_list))
        if len(gradients) != len(storage.variables):
            raise ValueError(
                f"gradients: expected {len(storage.variables)}, one for each of variables_of(var_list),"
                f" got {len(gradients)}."
            )
        if not skip_gradients_aggregation:
            changed = [*storage.variables, self.iterations]
            gradients = average_over_replicas(gradients, changed, "var_list")
        numbers = self._step(storage.cliques, _flat(storage.variables), _flat(gradients))
        for variable, new in zip(storage.variables, tf.split(numbers, storage.sizes)):
            variable.assign(tf.cast(tf.reshape(new, variable.shape), variable.dtype))
        self.iterations.assign_add(1)

    def _step(self, cliques: Cliques, numbers: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        """The free numbers of the new q."""
        gamma, mean_gamma = self._step_sizes(cliques)
        max_kl = self.max_kl if cliques.is_deep else None
        factors, local_changes, changes = [], [], []
        for batch, (_, L), (G_m, G_L) in zip(
            cliques.batches, cliques.split(numbers), cliques.split(gradient)
        ):
            in_pattern = batch.factor < cliques.size
            g = tf.where(in_pattern, tf.matmul(L, G_L, transpose_a=True), 0.0)
            h = _retract(g, gamma, batch, max_kl)
            factors.append(tf.matmul(L, h))
            # Columns that several cliques have count once.
            u = batch.owned * tf.linalg.matvec(factors[-1], G_m, transpose_a=True)
            local_changes.append(tf.linalg.matvec(h, u))
            changes.append(tf.linalg.matvec(factors[-1], u))
        if max_kl is not None:
            # The mean's part of the divergence is |L_0^-1 (m - m_0)|^2 / 2.
            norm = tf.norm(cliques.total(local_changes))
            mean_gamma = tf.minimum(mean_gamma, (2.0 * max_kl * cliques.num_means) ** 0.5 / norm)
        return cliques.join(numbers, -mean_gamma * cliques.total(changes), factors)

    def _step_sizes(self, cliques: Cliques) -> tuple[tf.Tensor, tf.Tensor]:
        """Of factor and mean, at this step."""

        def now(name: str) -> tf.Tensor:
            gamma = getattr(self, name)
            if not callable(gamma):
                return tf.constant(gamma, _FLOAT)
            value = tf.cast(gamma(self.iterations), _FLOAT)
            message = f"{name}: expected a function with values between 0 and 1, got"
            tf.debugging.Assert((value >= 0.0) & (value <= 1.0), [message, value])
            return value

        gamma = now("gamma")
        if self.mean_gamma is not None:
            return gamma, now("mean_gamma")
        return gamma, tf.minimum(gamma, tf.constant(1.0 / cliques.num_unlinked, _FLOAT))


def closed_form(g: tf.Tensor, gamma: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    The step that is exact where the loss is quadratic, h of the module's equation.

    :param g: L^T G_L in the pattern of the cliques, [B, c, c].
    :param gamma: the step size.
    :return: h [B, c, c], and [B] whether W was positive definite; where not, h is not a number.
    """
    W = gamma * (g + tf.linalg.matrix_transpose(g))
    W = tf.linalg.set_diag(W, 1.0 + gamma * tf.linalg.diag_part(g))
    # W = h^-T h^-1 is a Cholesky factorisation from the last row to the first.
    factor = tf.linalg.cholesky(tf.reverse(W, [-2, -1]))
    inverse = tf.linalg.triangular_solve(factor, tf.eye(tf.shape(g)[-1], dtype=g.dtype))
    h = tf.reverse(tf.linalg.matrix_transpose(inverse), [-2, -1])
    return h, tf.reduce_all(tf.math.is_finite(h), axis=[-2, -1])


def clipped_quadratic(g: tf.Tensor, gamma: tf.Tensor, max_kl: tf.Tensor) -> tf.Tensor:
    """
    I + A + A^2 / 2, the exponential of the natural gradient step A to second order: nothing in it can fail,
    and its diagonal is at least 1/2.

    :param g: as for :func:`closed_form`.
    :param gamma: the step size, made less where A would have a norm above 1 or the divergence, to second
        order, would exceed
    :param max_kl: [B].
    """
    diagonal = tf.linalg.diag_part(g)
    A = -gamma * tf.linalg.set_diag(g, 0.5 * diagonal)
    # |A|_2^2 <= |A|_1 |A|_inf, which for diagonal matrices, unlike Frobenius' norm, is an equality.
    sums = [tf.reduce_max(tf.reduce_sum(tf.abs(A), axis), axis=-1) for axis in (-2, -1)]
    squares = tf.reduce_sum(tf.square(A), axis=[-2, -1])
    kl = 0.5 * (squares + tf.reduce_sum(tf.square(tf.linalg.diag_part(A)), axis=-1))
    scale = tf.minimum((sums[0] * sums[1]) ** -0.5, tf.sqrt(max_kl / kl))
    A *= tf.minimum(scale, tf.ones_like(scale))[:, None, None]
    return tf.eye(tf.shape(g)[-1], dtype=g.dtype) + A + 0.5 * tf.matmul(A, A)


def _retract(g: tf.Tensor, gamma: tf.Tensor, batch: Batch, max_kl: float | None) -> tf.Tensor:
    """The closed form where it exists and stays in the trust region, elsewhere the quadratic."""
    h, good = closed_form(g, gamma)
    limit = batch.owned.sum(axis=-1) * (inf if max_kl is None else max_kl)
    if max_kl is not None:
        # KL[N(0, h h^T) || N(0, I)], by columns.
        columns = tf.reduce_sum(tf.square(h), axis=-2) - 1.0
        columns -= 2.0 * tf.math.log(tf.linalg.diag_part(h))
        good &= 0.5 * tf.reduce_sum(batch.owned * columns, axis=-1) <= limit
    return tf.cond(
        tf.reduce_all(good),
        lambda: h,
        lambda: tf.where(good[:, None, None], h, clipped_quadratic(g, gamma, limit)),
    )


class _Layer(NamedTuple):
    """Independent GPs of one layer, with parameters in GPflow's shapes."""

    q_mu: Parameter
    q_sqrt: Parameter
    is_output: bool

    def free_numbers(self, read: Positions) -> FreeNumbers:
        return layer_free_numbers(*self, read)


class _Storage:
    """The variables of some Gaussians, and how to get at their cliques."""

    def __init__(self, *gaussians: _Layer | InducingPosterior) -> None:
        read = Positions()
        with tf.init_scope():  # of the structure, not of a graph that is being built
            numbers = [gaussian.free_numbers(read) for gaussian in gaussians]
        self.variables = [parameter.unconstrained_variable for parameter in read.parameters]
        self.sizes = [int(np.prod(variable.shape)) for variable in self.variables]
        self.cliques = Cliques(numbers, read.size)


def _gaussians(var_list: Any) -> Sequence[_Layer | InducingPosterior]:
    """What there is to update in a model, a posterior or pairs."""
    posterior = getattr(var_list, "inducing_posterior", var_list)
    if isinstance(posterior, InducingPosterior):
        return [posterior]
    layers = list(posterior) if isinstance(posterior, Sequence) else [posterior]
    pairs = [
        tuple(layer)
        if isinstance(layer, Sequence)
        else (getattr(layer, "q_mu", None), getattr(layer, "q_sqrt", None))
        for layer in layers
    ]
    gaussians = [
        _layer(pair, is_output=index == len(pairs) - 1)
        for index, pair in enumerate(pairs)
        if len(pair) == 2 and all(isinstance(part, Parameter) for part in pair)
    ]
    if not gaussians:
        has_another = isinstance(posterior, Module) and posterior is not var_list
        part = f" with {type(posterior).__name__}" if has_another else ""
        raise ValueError(
            "var_list: expected a model with an InducingPosterior, IndependentGaussian, or q_mu and q_sqrt,"
            f" got {type(var_list).__name__}{part}. Other models train with Adam."
        )
    return gaussians


def _layer(pair: tuple[Parameter, Parameter], is_output: bool) -> _Layer:
    q_mu, q_sqrt = pair
    if len(q_sqrt.shape) != 3:
        raise ValueError(
            "var_list: expected a full covariance factor q_sqrt [P, M, M], got shape"
            f" {list(q_sqrt.shape)}."
        )
    return _Layer(q_mu, q_sqrt, is_output)


def _describe(value: Any) -> str:
    """The same in every process, as long as a function has the same name."""
    if not callable(value):
        return repr(value)
    try:
        return f"{type(value).__name__}({value.get_config()})"
    except (AttributeError, NotImplementedError):
        return getattr(value, "__qualname__", type(value).__name__)


def _flat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(tf.cast(value, _FLOAT), [-1]) for value in values], axis=0)
