r"""
Expectations under normals, by nodes placed where the integrand needs them.

Gauss-Hermite nodes stand at fixed multiples of the standard deviation, and miss whatever is narrower than
their distance: a kink or a narrow peak of a log density. Here the trapezoidal rule, which for a smooth
integrand with the tails of a normal converges geometrically, is applied in a variable t with

.. math:: z = c + \operatorname{asinh}(s \sinh t)

where z is the latent function in standard deviations from its mean: near c the distance of nodes grows as
:math:`\sqrt{s^2 + (z - c)^2}`, far from it it is even. A peak of width s in a normal a thousand times as
wide so costs twice as many nodes as the normal alone. Where c is, how small s, and how far the nodes must
reach is found out by some evaluations without gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..numerics.linalg import standard_deviation

__all__ = ["Placement", "expectation", "expectation_at", "log_expectation"]

Function = Callable[[tf.Tensor], tf.Tensor]
"""
Of the latent functions [Q, N, P], value by value: the same shape. In all that follows there may be more axes,
of draws, before N.
"""

_NUM_NODES = 48
_NUM_NODES_OF_DENSITIES = 64
# Where the density of a normal falls below the rounding error of float64.
_REACH = 8.5
_ROUNDS = 5
_ZOOM = 3.0
# For modes of integrands, of which each round shows a fourth: to 2e-10 and 1e-6 standard deviations.
_MORE_ROUNDS = {tf.float64: 9, tf.float32: 3}
# Beyond this many standard deviations a value that is not finite is left out.
_NEGLIGIBLE = 6.0
# When the step falls by _ZOOM, third differences of a smooth function fall by _ZOOM^3, of a kink by _ZOOM.
_SMOOTH = 0.06


class Placement(NamedTuple):
    """Where nodes should be, in standard deviations from the mean; each [N, P]."""

    centre: tf.Tensor
    scale: tf.Tensor
    low: tf.Tensor
    high: tf.Tensor


def expectation(function: Function, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """
    E[function(f)] for normal f: [N, P].

    Measured of log densities with one feature of a width down to 0.02, as a Student-t, probit or sigmoid, for
    variances up to 100: relative errors below 1e-4, mostly below 1e-8. Of several features that are narrower
    than the normal, the nodes gather about one: errors of Beta reach 1e-2 for a variance of 100, and those of
    narrower features more, in gradients too; :mod:`.ordinal` has nodes of its own. Where a log density has a
    singularity, as log f^2 in Poisson(invlink=tf.square), errors are of some percent for any variance.

    :param function: of f; it may grow exponentially in f.
    :param mean: [N, P].
    :param variance: [N, P].
    """
    f = _Normal(mean, variance)
    place = _place(lambda z: function(f.fixed(z)), mean)
    return expectation_at(place, _NUM_NODES, function, mean, variance)


def expectation_at(
    place: Placement, num_nodes: int, function: Function, mean: tf.Tensor, variance: tf.Tensor
) -> tf.Tensor:
    """E[function(f)] for normal f, [N, P], by nodes of a given place, which has no gradient."""
    z, jacobian = _nodes(place, num_nodes, mean)
    weights = jacobian * _normal(z)
    weights /= tf.reduce_sum(weights, axis=0)
    return tf.reduce_sum(weights * function(_Normal(mean, variance).at(z)), axis=0)


def log_expectation(log_function: Function, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """
    log E[exp(log_function(f))] for normal f: [N, P].

    :param log_function: of f.
    :param mean: [N, P].
    :param variance: [N, P].
    """
    f = _Normal(mean, variance)
    placement = _place_at_mode(lambda z: log_function(f.fixed(z)), mean)
    z, jacobian = _nodes(placement, _NUM_NODES_OF_DENSITIES, mean)
    log_weights = tf.math.log(jacobian) - 0.5 * tf.square(z) - 0.5 * np.log(2.0 * np.pi)
    return tf.reduce_logsumexp(log_function(f.at(z)) + log_weights, axis=0)


class _Normal:
    """f at standardised values z [Q, N, P]."""

    def __init__(self, mean: tf.Tensor, variance: tf.Tensor) -> None:
        self._mean, self._scale = mean, standard_deviation(variance)

    def at(self, z: tf.Tensor) -> tf.Tensor:
        return self._mean + self._scale * z

    def fixed(self, z: tf.Tensor) -> tf.Tensor:
        """Without gradients, which the places of nodes need not have."""
        return tf.stop_gradient(self._mean) + tf.stop_gradient(self._scale) * z


def _nodes(placement: Placement, num_nodes: int, mean: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Nodes z and the trapezoidal rule's weights for an integral over z, both [Q, N, P]."""
    centre, scale, low, high = placement
    first, last = (tf.asinh(tf.sinh(end - centre) / scale) for end in (low, high))
    step = (last - first) / (num_nodes - 1.0)
    growth = tf.exp(first + step * _column(np.arange(num_nodes), mean))
    decay = 1.0 / growth
    stretched = 0.5 * scale * (growth - decay)  # s sinh t
    # asinh and its derivative share a root; TensorFlow's own takes longer than all the rest.
    square, size = tf.square(stretched), tf.abs(stretched)
    root = tf.sqrt(1.0 + square)
    jacobian = 0.5 * step * scale * (growth + decay) / root
    z = centre + tf.sign(stretched) * tf.math.log1p(size + square / (1.0 + root))
    return tf.stop_gradient(z), tf.stop_gradient(jacobian)


# The place of the least smooth part.

_COARSE = np.arange(-_REACH, _REACH + 0.5)  # [18]
_FINE = np.arange(-4.5, 5.0)  # [10]
_OUTER = np.array([10.5, 12.5, 14.5, 17.0])


def _place(function: Function, mean: tf.Tensor) -> Placement:
    """For the expectation of a function of z, in deviations from a mean."""
    outer = np.concatenate([-_OUTER[::-1], _COARSE, _OUTER])
    z = _column(outer, mean)
    values = function(z)
    coarse = slice(len(_OUTER), -len(_OUTER))
    centre, scale = _least_smooth(function, z[coarse], values[coarse], _normal)
    mass = tf.abs(values) * _normal(z)
    low, high = _reach(z, mass)
    return Placement(centre, scale, low, high)


def _least_smooth(
    function: Function, z: tf.Tensor, values: tf.Tensor, weight: Function
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Where the weighted third differences of a function are largest, and the step below which they fall as
    those of smooth functions do.

    :param z: a coarse grid [Q, 1, 1] of distance 1.
    :param values: the function's there, [Q, N, P].
    :param weight: of z.
    """
    centre, size = _third_difference(z, values, weight)
    scale, rough = tf.ones_like(centre), tf.ones_like(centre, tf.bool)
    fine = _column(_FINE, z[0])

    def still_rough(step: tf.Tensor, rough: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(rough)

    def zoom(
        step: tf.Tensor, rough: tf.Tensor, centre: tf.Tensor, scale: tf.Tensor, size: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        z = centre + step * fine
        nearer, smaller = _third_difference(z, function(z), weight)
        rough &= smaller > _SMOOTH * size
        centre, scale = tf.where(rough, nearer, centre), tf.where(rough, step, scale)
        return step / _ZOOM, rough, centre, scale, smaller

    # Where all functions are smooth, as is usual, one round tells.
    start = tf.constant(1.0 / _ZOOM, z.dtype), rough, centre, scale, size
    _, _, centre, scale, _ = tf.while_loop(still_rough, zoom, start, maximum_iterations=_ROUNDS)
    return centre, scale


def _normal(z: tf.Tensor) -> tf.Tensor:
    return tf.exp(-0.5 * tf.square(z))


def _third_difference(
    z: tf.Tensor, values: tf.Tensor, weight: Function
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Where on an even grid the third differences are largest, and how large; what is rounding counts as zero.
    """
    difference = values[3:] - values[:-3] - 3.0 * (values[2:-1] - values[1:-2])
    size = tf.abs(difference)
    rounding = 16.0 * np.finfo(z.dtype.as_numpy_dtype).eps
    counts = (size > rounding * tf.abs(values[1:-2])) & tf.math.is_finite(size)
    size = tf.where(counts, size * weight(0.5 * (z[1:-2] + z[2:-1])), tf.zeros_like(size))
    index = tf.cast(tf.argmax(size), z.dtype)
    return z[0] + (1.5 + index) * (z[1] - z[0]), tf.reduce_max(size, axis=0)


def _reach(z: tf.Tensor, mass: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    The ends of where the integrand counts and is finite.

    :param z: a grid [Q, 1, 1], increasing, even about 0.
    :param mass: the integrand's size there, [Q, N, P].
    """
    finite = tf.math.is_finite(mass)
    known = tf.where(finite, mass, tf.zeros_like(mass))
    counts = known > np.finfo(z.dtype.as_numpy_dtype).eps * tf.reduce_max(known, axis=0)
    half = z.shape[0] // 2
    ends = []
    for side in (slice(half - 1, None, -1), slice(half, None)):
        distance = tf.abs(z[side])
        run = tf.math.cumprod(tf.cast(finite[side] | (distance < _NEGLIGIBLE), z.dtype), axis=0)
        wanted = tf.where(counts[side] | (distance <= _REACH), distance, tf.zeros_like(distance))
        ends.append(tf.minimum(tf.reduce_max(run * distance, 0), tf.reduce_max(wanted, 0)))
    return -ends[0], ends[1]


# The mode of an integrand.

_FAR = 17.0 * 2.0 ** np.arange(10)
_WIDE = np.concatenate([-_FAR[::-1], np.arange(-16.0, 17.0), _FAR])  # [53]
_BROAD = 0.5


def _place_at_mode(log_function: Function, mean: tf.Tensor) -> Placement:
    """
    For the expectation of exp(log_function) of z: about the mode of the integrand where that is narrow, where
    the log function is least smooth otherwise.
    """

    def log_integrand(z: tf.Tensor) -> tf.Tensor:
        value = log_function(z) - 0.5 * tf.square(z)
        return tf.where(tf.math.is_finite(value), value, tf.fill(tf.shape(value), z.dtype.min))

    wide = _column(_WIDE, mean)
    values = log_integrand(wide)
    mode, highest, scale = _mode(log_integrand, wide, values)

    z = _column(_COARSE, mean)
    kink, width = _least_smooth(log_function, z, log_function(z), tf.ones_like)
    narrow = scale < _BROAD
    centre, scale = tf.where(narrow, mode, kink), tf.where(narrow, scale, width)

    # From the mode to where the integrand is lost in rounding; the normal's own mass may count far from it.
    least = highest + np.log(np.finfo(z.dtype.as_numpy_dtype).eps)
    around_mean = tf.reduce_max(tf.where(tf.abs(wide) <= _REACH, values, z.dtype.min), axis=0)
    nearest = tf.where(around_mean > least, tf.zeros_like(mode), mode)
    ends = []
    for end in (tf.minimum(mode, nearest) - _REACH, tf.maximum(mode, nearest) + _REACH):
        shares = _column(np.arange(1, 9) / 8.0, mean)
        inside = log_integrand(mode + shares * (end - mode))
        finite = tf.math.cumprod(tf.cast(inside > z.dtype.min, z.dtype), axis=0)
        counts = tf.where(inside > least, shares, tf.zeros_like(shares))
        share = tf.minimum(tf.reduce_max(counts, 0) + 0.125, tf.reduce_max(finite * shares, 0))
        ends.append(mode + share * (end - mode))
    return Placement(centre, scale, *ends)


def _mode(
    log_integrand: Function, z: tf.Tensor, values: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """
    The mode of an integrand, its logarithm there, and the distance, at most 1, on which it stays within 0.5.

    :param z: a grid [Q, 1, 1].
    :param values: of the logarithm there, [Q, N, P].
    """
    best = tf.argmax(values)
    last = z.shape[0] - 1
    low, high = (
        tf.gather(tf.reshape(z, [-1]), tf.clip_by_value(best + i, 0, last)) for i in (-1, 1)
    )
    shares = _column(np.linspace(0.0, 1.0, 9), z[0])

    def zoom(
        mode: tf.Tensor, highest: tf.Tensor, low: tf.Tensor, high: tf.Tensor, width: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        values = log_integrand(low + (high - low) * shares)
        step = (high - low) / 8.0
        mode = low + step * tf.cast(tf.argmax(values), z.dtype)
        highest = tf.reduce_max(values, axis=0)
        near = tf.reduce_sum(tf.cast(values > highest - 0.5, z.dtype), axis=0)
        width = tf.maximum(width, tf.floor(0.5 * (near - 1.0)) * step)
        return mode, highest, mode - step, mode + step, width

    state: tuple[tf.Tensor, ...] = (low, low, low, high, tf.zeros_like(low))
    for _ in range(_ROUNDS + 1):
        state = zoom(*state)
    # A peak that no grid has shown the width of is narrower still, but for what rounding hides.
    mode, highest, low, high, width = tf.while_loop(
        lambda *state: tf.reduce_any(tf.equal(state[-1], 0.0)),
        zoom,
        state,
        maximum_iterations=_MORE_ROUNDS[z.dtype],
    )
    return mode, highest, tf.clip_by_value(width, 0.5 * (high - low), tf.ones_like(width))


def _column(values: np.ndarray, like: tf.Tensor) -> tf.Tensor:
    """[Q, 1, 1], with as many axes of one as a tensor [N, P] has."""
    return tf.reshape(tf.constant(values, like.dtype), [-1, *[1] * like.shape.rank])
