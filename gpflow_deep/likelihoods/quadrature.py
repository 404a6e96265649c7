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
    z, jacobian = _nodes_at_modes(lambda z: log_function(f.fixed(z)), mean)
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


# The modes of an integrand.

_FAR = 17.0 * 2.0 ** np.arange(10)
_WIDE = np.concatenate([-_FAR[::-1], np.arange(-16.0, 17.0), _FAR])  # [53]
_BROAD = 0.5
_ROUNDS_BEYOND = 3
_DEEP = 1.0  # how far the logarithm falls between two modes that are apart


class _Mode(NamedTuple):
    """Of an integrand; each [N, P]."""

    place: tf.Tensor
    highest: tf.Tensor  # the integrand's logarithm there
    width: tf.Tensor  # the distance, at most 1, on which that stays within 0.5


class _Bracket(NamedTuple):
    """Between which a mode is, each [N, P]; twice the same where there is none."""

    low: tf.Tensor
    high: tf.Tensor

    @property
    def is_there(self) -> tf.Tensor:
        return self.high > self.low

    def or_else(self, other: _Bracket, where: tf.Tensor | bool = True) -> _Bracket:
        """Itself where it has a mode, else the other where that is wanted."""
        other_wanted = ~self.is_there & where
        return _Bracket(*(tf.where(other_wanted, y, x) for x, y in zip(self, other)))


def _nodes_at_modes(log_function: Function, mean: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Nodes and weights of :func:`_nodes` for the expectation of exp(log_function) of z: about the mode of the
    integrand where that is narrow, where the log function is least smooth otherwise. Of two narrow modes each
    has half of them, on its side of the valley between.
    """

    def log_integrand(z: tf.Tensor) -> tf.Tensor:
        value = log_function(z) - 0.5 * tf.square(z)
        return tf.where(tf.math.is_finite(value), value, tf.fill(tf.shape(value), z.dtype.min))

    wide = _column(_WIDE, mean)
    values = log_integrand(wide)
    here, farther = _brackets(values, lambda index: tf.gather(tf.reshape(wide, [-1]), index))
    mode, seen = _mode(log_integrand, here, _ROUNDS_BEYOND)

    z = _column(_COARSE, mean)
    kink, width = _least_smooth(log_function, z, log_function(z), tf.ones_like)
    narrow = mode.width < _BROAD
    centre, scale = tf.where(narrow, mode.place, kink), tf.where(narrow, mode.width, width)

    # From the mode to where the integrand is lost in rounding; the normal's own mass may count far from it.
    least = mode.highest + _rounding(z.dtype)
    around_mean = tf.reduce_max(tf.where(tf.abs(wide) <= _REACH, values, z.dtype.min), axis=0)
    nearest = tf.where(around_mean > least, tf.zeros_like(mode.place), mode.place)
    farthest = tf.minimum(mode.place, nearest) - _REACH, tf.maximum(mode.place, nearest) + _REACH
    ends = [_end(log_integrand, mode.place, end, least) for end in farthest]
    nodes = _nodes(Placement(centre, scale, *ends), _NUM_NODES_OF_DENSITIES, mean)
    another = _Bracket(mode.place, mode.place)
    for bracket in (farther, *seen):
        elsewhere = (mode.place < bracket.low) | (mode.place > bracket.high)
        another = another.or_else(bracket, where=elsewhere)

    def by_both() -> tuple[tf.Tensor, tf.Tensor]:
        other, _ = _mode(log_integrand, another.or_else(here), 0)
        are_two, both = _nodes_of_two(log_integrand, (mode, other), mean)
        return tuple(tf.where(are_two, x, y) for x, y in zip(both, nodes))

    found: tuple[tf.Tensor, tf.Tensor] = tf.cond(
        tf.reduce_any(another.is_there & narrow), by_both, lambda: nodes
    )
    return found


def _nodes_of_two(
    log_integrand: Function, modes: tuple[_Mode, _Mode], mean: tf.Tensor
) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
    """Whether two modes are narrow and apart, [N, P], and nodes and weights of which each has half."""
    swap = modes[1].place < modes[0].place
    left, right = (
        _Mode(*(tf.where(swap, y, x) for x, y in zip(*pair))) for pair in (modes, modes[::-1])
    )
    distance = right.place - left.place
    shares = _column(np.arange(1, 16) / 16.0, mean)
    valley = log_integrand(left.place + shares * distance)
    edge = left.place + distance * tf.gather(tf.reshape(shares, [-1]), tf.argmin(valley))
    deep = tf.minimum(left.highest, right.highest) - tf.reduce_min(valley, axis=0) > _DEEP
    are_two = deep & (left.width < _BROAD) & (right.width < _BROAD)
    least = tf.maximum(left.highest, right.highest) + _rounding(mean.dtype)
    low = _end(log_integrand, left.place, left.place - _REACH, least)
    high = _end(log_integrand, right.place, right.place + _REACH, least)
    half = _NUM_NODES_OF_DENSITIES // 2
    sides = (
        _nodes(Placement(left.place, left.width, low, edge), half, mean),
        _nodes(Placement(right.place, right.width, edge, high), half, mean),
    )
    z, jacobian = (tf.concat(pair, axis=0) for pair in zip(*sides))
    # Of the edge, which is a node of both, half to each.
    own = np.concatenate([np.ones(half - 1), [0.5, 0.5], np.ones(half - 1)])
    return are_two, (z, jacobian * _column(own, mean))


def _rounding(dtype: tf.DType) -> float:
    """The logarithm of what is lost beside one."""
    return float(np.log(np.finfo(dtype.as_numpy_dtype).eps))


def _end(
    log_integrand: Function, mode: tf.Tensor, farthest: tf.Tensor, least: tf.Tensor
) -> tf.Tensor:
    """Where the integrand, followed from its mode, has fallen below what counts; each [N, P]."""
    shares = _column(np.arange(1, 9) / 8.0, mode)
    inside = log_integrand(mode + shares * (farthest - mode))
    finite = tf.math.cumprod(tf.cast(inside > inside.dtype.min, inside.dtype), axis=0)
    counts = tf.where(inside > least, shares, tf.zeros_like(shares))
    share = tf.minimum(tf.reduce_max(counts, 0) + 0.125, tf.reduce_max(finite * shares, 0))
    return mode + share * (farthest - mode)


def _brackets(values: tf.Tensor, at: Callable[[tf.Tensor], tf.Tensor]) -> tuple[_Bracket, _Bracket]:
    """
    Where the largest of some values is, and where the largest of the other peaks.

    :param values: on a grid [Q, N, P].
    :param at: the grid's values by their index, each [N, P].
    """
    best, last = tf.argmax(values), values.shape[0] - 1
    inner = values[1:-1]
    is_peak = (inner > values[:-2]) & (inner >= values[2:])
    is_peak &= _column(np.arange(1, last), inner[0]) != tf.cast(best, inner.dtype)
    index = 1 + tf.argmax(tf.where(is_peak, inner, tf.fill(tf.shape(inner), inner.dtype.min)))
    around = _Bracket(*(at(tf.clip_by_value(best + i, 0, last)) for i in (-1, 1)))
    low, high = at(index - 1), at(index + 1)
    return around, _Bracket(low, tf.where(tf.reduce_any(is_peak, axis=0), high, low))


def _mode(
    log_integrand: Function, around: _Bracket, rounds_beyond: int
) -> tuple[_Mode, list[_Bracket]]:
    """
    The mode of an integrand in a bracket, or in some rounds beyond its ends, and where other peaks were seen.
    """
    low, high = around
    # The second grid reaches half as far again to both sides: of peaks in two cells a grid may show one.
    within, beyond = (_column(np.arange(*ends) / 8.0, low) for ends in ((0, 9), (-4, 13)))

    def zoom(
        shares: tf.Tensor, low: tf.Tensor, high: tf.Tensor, width: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, ...], _Bracket]:
        values = log_integrand(low + (high - low) * shares)
        step = (high - low) / 8.0
        first = low + (high - low) * shares[0]
        _, another = _brackets(values, lambda index: first + step * tf.cast(index, low.dtype))
        mode = first + step * tf.cast(tf.argmax(values), low.dtype)
        highest = tf.reduce_max(values, axis=0)
        near = tf.reduce_sum(tf.cast(values > highest - 0.5, low.dtype), axis=0)
        width = tf.maximum(width, tf.floor(0.5 * (near - 1.0)) * step)
        return (mode, highest, mode - step, mode + step, width), another

    others, width = [], tf.zeros_like(low)
    for shares in [beyond] * rounds_beyond + [within] * (_ROUNDS + 1 - rounds_beyond):
        (mode, highest, low, high, width), another = zoom(shares, low, high, width)
        others.append(another)
    # A peak that no grid has shown the width of is narrower still, but for what rounding hides.
    mode, highest, low, high, width = tf.while_loop(
        lambda *state: tf.reduce_any(tf.equal(state[-1], 0.0)),
        lambda *state: zoom(within, *state[2:])[0],
        (mode, highest, low, high, width),
        maximum_iterations=_MORE_ROUNDS[low.dtype],
    )
    width = tf.clip_by_value(width, 0.5 * (high - low), tf.ones_like(width))
    return _Mode(mode, highest, width), others


def _column(values: np.ndarray, like: tf.Tensor) -> tf.Tensor:
    """[Q, 1, 1], with as many axes of one as a tensor [N, P] has."""
    return tf.reshape(tf.constant(values, like.dtype), [-1, *[1] * like.shape.rank])
