"""The one place that random numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

__all__ = [
    "as_seed",
    "digital_shift",
    "even_normals",
    "even_uniforms",
    "quasi_normals",
    "standard_normals",
]

_BITS = 30  # of a coordinate of a Sobol point


def standard_normals(
    shapes: Sequence[Sequence[TensorType]],
    seed: TensorType | None = None,
    dtype: tf.DType | None = None,
) -> list[tf.Tensor]:
    """
    Standard normal draws of the given shapes.

    :param seed: ``None`` for TensorFlow's global generator (``tf.random.set_seed`` reproduces it), or two
        integers of which the draws are a pure function, or one, for itself and zero.
    :param dtype: of the draws; the default float by default.
    :raises ValueError: where ``seed`` is something else.
    """
    if seed is not None:
        seed = as_seed(seed)
    dtype = dtype or gpflow.default_float()
    seeds: Sequence[tf.Tensor | None] = [None] * len(shapes)
    if seed is not None:
        seeds = [tf.random.experimental.stateless_fold_in(seed, i) for i in range(len(shapes))]
    draw = _box_muller if dtype == tf.float32 else partial(_tensorflow, dtype=dtype)
    return [draw(shape, own) for shape, own in zip(shapes, seeds)]


def as_seed(seed: TensorType | None) -> tf.Tensor:
    """
    Two integers: those given, one and zero, or new ones of TensorFlow's global generator.

    :raises ValueError: where ``seed`` is something else.
    """
    if seed is None:
        return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    try:
        # TensorFlow has no room for more than 32 bits of a Python integer, NumPy has.
        tensor = tf.convert_to_tensor(np.asarray(seed) if isinstance(seed, int) else seed)
    except (TypeError, ValueError):
        tensor = None
    if tensor is not None and tensor.dtype.is_integer:
        if tensor.shape == [2]:
            return tensor
        known = tf.get_static_value(tensor)
        if tensor.shape == [] and (known is None or known >= 0):
            return tf.stack([tensor, tf.zeros_like(tensor)])
    raise ValueError(f"seed: expected None, an integer from 0 on, or two integers, got {seed!r}.")


def _tensorflow(shape: Sequence[TensorType], seed: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor:
    if seed is None:
        return tf.random.normal(shape, dtype=dtype)
    return tf.random.stateless_normal(shape, seed=seed, dtype=dtype)


def _box_muller(shape: Sequence[TensorType], seed: tf.Tensor | None) -> tf.Tensor:
    """
    Box & Muller (1958): two draws of a radius and an angle, in float32.

    TensorFlow's own kernel does the same with functions of one number at a time, in 1.6 times the time; in
    float64 its own is faster.
    """
    shape = tf.convert_to_tensor(shape, tf.int32)
    size = tf.reduce_prod(shape)
    pairs = [2, (size + 1) // 2]
    uniform = tf.random.uniform(pairs) if seed is None else tf.random.stateless_uniform(pairs, seed)
    radius = tf.sqrt(-2.0 * tf.math.log(1.0 - uniform[0]))
    angle = 2.0 * np.pi * uniform[1]
    draws = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=0)
    return tf.reshape(draws[:size], shape)


def quasi_normals(num_samples: int, dims: Sequence[int], seed: int) -> list[np.ndarray]:
    """
    Standard normal draws by a scrambled Sobol sequence: they fill the space more evenly than random
    ones, so that a mixture of few of them is nearer to its limit.

    :return: for every d in ``dims`` an array [num_samples, d], in the default float.
    """
    if sum(dims) == 0:
        return [np.zeros([num_samples, 0], gpflow.default_float()) for _ in dims]
    # Half a second to import, which training does without.
    from scipy.stats import norm

    uniform = _sobol(num_samples, sum(dims), seed)[:num_samples]
    tiny = np.finfo(np.float64).eps
    normal = norm.ppf(np.clip(uniform, tiny, 1.0 - tiny)).astype(gpflow.default_float())
    return np.split(normal, np.cumsum(dims)[:-1], axis=1)


def even_normals(least: int, dims: int, shift: tf.Tensor | None = None) -> tf.Tensor:
    """
    :func:`even_uniforms` as standard normals.
    """
    return tf.math.ndtri(even_uniforms(least, dims, shift))


def even_uniforms(least: int, dims: int, shift: tf.Tensor | None = None) -> tf.Tensor:
    """
    All points of a scrambled Sobol sequence up to a power of two, between zero and one, in float64.

    :param least: how many are wanted at least.
    :param shift: binary digits [..., dims] that are added to points without carrying (:func:`digital_shift`).
    :return: [..., that power of two, dims], one set for each shift
    """
    points = _digits(least, dims)
    if shift is not None:
        points = tf.bitwise.bitwise_xor(points, shift[..., None, :])
    return (tf.cast(points, tf.float64) + 0.5) / 2.0**_BITS


def digital_shift(
    dims: int, seed: TensorType | None = None, batch: TensorType | None = None
) -> tf.Tensor:
    """
    A random shift (L'Ecuyer & Lemieux 2002), by which every point is uniform and all are as even as before.

    :param seed: as for :func:`standard_normals`.
    :param batch: shape of several shifts, one by default.
    :return: [batch..., dims].
    """
    shape = [dims] if batch is None else tf.concat([batch, [dims]], axis=0)
    options = dict(shape=shape, minval=0, maxval=2**_BITS, dtype=tf.int64)
    if seed is None:
        return tf.random.uniform(**options)
    return tf.random.stateless_uniform(seed=seed, **options)


@lru_cache(maxsize=16)
def _digits(least: int, dims: int) -> np.ndarray:
    """The points' first binary digits, as whole numbers."""
    return np.floor(2.0**_BITS * _sobol(least, dims, 0)).astype(np.int64)


def _sobol(least: int, dims: int, seed: int) -> np.ndarray:
    """Points in [0, 1), the power of two from ``least`` on: only so many are balanced."""
    # 20 MB and half a second to import, which training does without.
    from scipy.stats import qmc

    sobol = qmc.Sobol(dims, scramble=True, bits=_BITS, rng=np.random.default_rng(seed))
    return sobol.random_base2(int(np.ceil(np.log2(max(least, 2)))))
