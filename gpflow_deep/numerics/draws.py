"""The one place that random numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

__all__ = ["quasi_normals", "standard_normals"]


def standard_normals(
    shapes: Sequence[Sequence[TensorType]],
    seed: TensorType | None = None,
    dtype: tf.DType | None = None,
) -> list[tf.Tensor]:
    """
    Standard normal draws of the given shapes.

    :param seed: ``None`` for TensorFlow's global generator (``tf.random.set_seed`` reproduces it), or two
        integers of which the draws are a pure function.
    :param dtype: of the draws; the default float by default.
    :raises ValueError: where ``seed`` is something else.
    """
    if seed is not None and not _are_two_integers(seed):
        raise ValueError(f"seed: expected None or two integers, got {seed!r}.")
    dtype = dtype or gpflow.default_float()
    seeds: Sequence[tf.Tensor | None] = [None] * len(shapes)
    if seed is not None:
        seeds = [tf.random.experimental.stateless_fold_in(seed, i) for i in range(len(shapes))]
    draw = _box_muller if dtype == tf.float32 else partial(_tensorflow, dtype=dtype)
    return [draw(shape, own) for shape, own in zip(shapes, seeds)]


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


def _are_two_integers(seed: Any) -> bool:
    try:
        seed = tf.convert_to_tensor(seed)
    except (TypeError, ValueError):
        return False
    return seed.shape == [2] and seed.dtype.is_integer


def quasi_normals(num_samples: int, dims: Sequence[int], seed: int) -> list[np.ndarray]:
    """
    Standard normal draws by a scrambled Sobol sequence: they fill the space more evenly than random
    ones, so that a mixture of few of them is nearer to its limit.

    :return: for every d in ``dims`` an array [num_samples, d], in the default float.
    """
    # 20 MB and half a second to import, which training does without.
    from scipy.stats import norm, qmc

    if sum(dims) == 0:
        return [np.zeros([num_samples, 0], gpflow.default_float()) for _ in dims]
    sobol = qmc.Sobol(sum(dims), scramble=True, rng=np.random.default_rng(seed))
    # Sobol points are balanced in powers of two only; any first part of them will do here.
    uniform = sobol.random_base2(int(np.ceil(np.log2(max(num_samples, 2)))))[:num_samples]
    tiny = np.finfo(np.float64).eps
    normal = norm.ppf(np.clip(uniform, tiny, 1.0 - tiny)).astype(gpflow.default_float())
    return np.split(normal, np.cumsum(dims)[:-1], axis=1)
