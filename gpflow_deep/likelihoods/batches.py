"""
Arguments of likelihoods that are broadcast: draws of the functions [..., N, P] for one batch of inputs [N, D]
and observations [N, ...].

GPflow's likelihoods are to take them so, but some of its own and of its users' take matrices only. They are
given all rows under each other, as many copies of the batch as there are draws. Where a likelihood is made of
functions of the inputs these would be called with each input once for every draw, and could not have a value
for each row of the batch, such as the known variance of its noise: there the batch stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.likelihoods import Likelihood, SwitchedLikelihood

from .kinds import has_functions

__all__ = ["by_likelihood", "by_rows", "needs_rows"]


def needs_rows(
    likelihood: Likelihood, X: tf.Tensor, *functions: tf.Tensor, Y: tf.Tensor | None = None
) -> bool:
    """
    Whether a likelihood is to be given its arguments by :func:`by_rows`: not where they are matrices already,
    nor draws of functions for one batch and a likelihood that is made of functions of its inputs.
    """
    batch = [X] if Y is None else [X, Y]
    if _are_matrices([*functions, *batch]):
        return False
    are_draws = _are_matrices(batch) and len({f.shape.rank for f in functions}) == 1
    return not (are_draws and has_functions(likelihood))


def by_rows(function: Callable[..., Any], *arguments: TensorType) -> Any:
    """
    What a function of rows [N, ...] gives, one tensor [N, ...] or several, for arguments [batch..., ...] that
    are broadcast against each other, as those of GPflow's likelihoods.
    """
    tensors = [tf.convert_to_tensor(x) for x in arguments]
    if _are_matrices(tensors):
        return function(*tensors)
    known = reduce(tf.broadcast_static_shape, (x.shape[:-1] for x in tensors))
    if known.is_fully_defined():
        batch, size = tf.constant(known.as_list(), tf.int32), known.num_elements()
    else:
        batch = reduce(tf.broadcast_dynamic_shape, (tf.shape(x)[:-1] for x in tensors))
        size = tf.reduce_prod(batch)

    def rows(x: tf.Tensor) -> tf.Tensor:
        if not known.is_fully_defined() or x.shape[:-1] != known:
            x = tf.broadcast_to(x, tf.concat([batch, tf.shape(x)[-1:]], 0))
        return tf.reshape(x, [size, tf.shape(x)[-1] if x.shape[-1] is None else x.shape[-1]])

    def batches(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, tf.concat([batch, tf.shape(x)[1:]], 0))

    return tf.nest.map_structure(batches, function(*map(rows, tensors)))


def by_likelihood(
    function: Callable[..., tf.Tensor], likelihood: SwitchedLikelihood, *arguments: tf.Tensor
) -> tf.Tensor:
    """
    A function of (likelihood, X, ..., Y), which is [..., N], for observations of several likelihoods.

    :param arguments: inputs [N, D], latent functions [..., N, P], and observations [N, P + 1], the last.
    """
    index = tf.cast(arguments[-1][:, -1], tf.int32)
    parts = likelihood.likelihoods
    rows = tf.dynamic_partition(tf.range(tf.size(index)), index, len(parts))
    columns = *arguments[:-1], arguments[-1][:, :-1]
    values = [
        function(part, *(tf.gather(x, own, axis=-2) for x in columns))
        for part, own in zip(parts, rows)
    ]
    order = tf.math.invert_permutation(tf.concat(rows, axis=0))
    return tf.gather(tf.concat(values, axis=-1), order, axis=-1)


def _are_matrices(arguments: Sequence[tf.Tensor]) -> bool:
    """Also where their ranks are not known by now."""
    return all(x.shape.rank in (None, 2) for x in arguments)
