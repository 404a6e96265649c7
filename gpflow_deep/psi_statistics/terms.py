r"""
The parts of kernels whose expectations under a Gaussian have a closed form.

A *wave* is a squared exponential times a cosine, of the difference of two inputs,

.. math::
    w(h, z) = e^a \exp(-\tfrac12 (h - z)^T P (h - z)) \cos(\omega^T (h - z)),

with a diagonal P that may have zeros: the constant, the cosine, the squared exponential on some of the
inputs and every component of a spectral mixture are waves, and products of waves are sums of waves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import (
    Constant,
    Cosine,
    Kernel,
    Linear,
    Product,
    SquaredExponential,
    Sum,
    White,
)
from gpflow.utilities import Dispatcher

from ..kernels import SpectralMixture
from ..kernels.methods import has_methods_of

__all__ = [
    "LinearTerm",
    "LinearWave",
    "NoClosedForm",
    "Term",
    "Wave",
    "WhiteTerm",
    "on_all_inputs",
    "terms",
]


class NoClosedForm(NotImplementedError):
    """
    The expectations of a kernel under a Gaussian are not known in closed form.

    >>> try:
    ...     gd.psi_statistics.terms(gpflow.kernels.Matern52(), 1)
    ... except gd.psi_statistics.NoClosedForm:
    ...     "a model propagates moments through it by quadrature"
    'a model propagates moments through it by quadrature'
    """


class Wave(NamedTuple):
    """
    exp(log_amplitude - (h - z)^T P (h - z) / 2) cos(frequency^T (h - z)).

    >>> (wave,) = gd.psi_statistics.terms(gpflow.kernels.SquaredExponential(lengthscales=0.5), 2)
    >>> wave.precision.numpy()
    array([4., 4.])
    """

    log_amplitude: tf.Tensor  # []
    precision: tf.Tensor  # [D], the diagonal of P
    frequency: tf.Tensor | None = None  # [D]; None for no cosine


class LinearTerm(NamedTuple):
    """
    sum_d variance_d h_d z_d.

    >>> (term,) = gd.psi_statistics.terms(gpflow.kernels.Linear(variance=2.0), 2)
    >>> term.variance.numpy()
    array([2., 2.])
    """

    variance: tf.Tensor  # [D]


class LinearWave(NamedTuple):
    """
    A wave without a cosine times a linear kernel.

    >>> kernel = gpflow.kernels.SquaredExponential() * gpflow.kernels.Linear()
    >>> [type(term).__name__ for term in gd.psi_statistics.terms(kernel, 1)]
    ['LinearWave']
    """

    wave: Wave
    variance: tf.Tensor  # [D]


class WhiteTerm(NamedTuple):
    """
    Noise of its own at every input: it is in no covariance with inducing outputs.

    >>> (term,) = gd.psi_statistics.terms(gpflow.kernels.White(0.1), 1)
    >>> round(float(term.variance), 6)
    0.1
    """

    variance: tf.Tensor  # []


Term = Wave | LinearTerm | LinearWave | WhiteTerm
"""
What a kernel can be a sum of.

>>> (term,) = gd.psi_statistics.terms(gpflow.kernels.White(0.1), 1)
>>> isinstance(term, gd.psi_statistics.Term)
True
"""

terms = Dispatcher("terms")
"""
``terms(kernel, input_dim)``: the list of terms whose sum a kernel is. Register a function for a kernel
of your own: ``@terms.register(MyKernel, int)``.

>>> kernel = gpflow.kernels.SquaredExponential() + gpflow.kernels.Linear()
>>> [type(term).__name__ for term in gd.psi_statistics.terms(kernel, 1)]
['Wave', 'LinearTerm']

:raises NoClosedForm: where it is not such a sum.
"""


@terms.register(Kernel, int)
def _unknown(kernel: Kernel, input_dim: int) -> Sequence[Term]:
    del input_dim
    raise NoClosedForm(f"{type(kernel).__name__} has no closed form under a Gaussian.")


_TermsOf = Callable[[Any, int], Sequence[Term]]


def _register(kind: type[Kernel]) -> Callable[[_TermsOf], _TermsOf]:
    """Register the terms of a class: a subclass of it with methods of its own has others, unknown here."""

    def register(terms_of: _TermsOf) -> _TermsOf:
        def checked(kernel: Kernel, input_dim: int) -> Sequence[Term]:
            return (terms_of if has_methods_of(kernel, kind) else _unknown)(kernel, input_dim)

        terms.register(kind, int)(checked)
        return terms_of

    return register


@_register(SquaredExponential)
def _squared_exponential(kernel: SquaredExponential, input_dim: int) -> Sequence[Term]:
    precision = on_all_inputs(kernel, tf.square(1.0 / kernel.lengthscales), input_dim)
    return [Wave(tf.math.log(tf.convert_to_tensor(kernel.variance)), precision)]


@_register(Cosine)
def _cosine(kernel: Cosine, input_dim: int) -> Sequence[Term]:
    frequency = on_all_inputs(kernel, 2.0 * math.pi / kernel.lengthscales, input_dim)
    log_amplitude = tf.math.log(tf.convert_to_tensor(kernel.variance))
    return [Wave(log_amplitude, tf.zeros_like(frequency), frequency)]


@_register(SpectralMixture)
def _spectral_mixture(kernel: SpectralMixture, input_dim: int) -> Sequence[Term]:
    precisions = tf.square(2.0 * math.pi * tf.convert_to_tensor(kernel.bandwidths))
    frequencies = 2.0 * math.pi * tf.convert_to_tensor(kernel.frequencies)
    log_weights = tf.unstack(tf.math.log(kernel.weights))
    return [
        Wave(
            log_weight,
            on_all_inputs(kernel, precisions[q], input_dim),
            on_all_inputs(kernel, frequencies[q], input_dim),
        )
        for q, log_weight in enumerate(log_weights)
    ]


@_register(Constant)
def _constant(kernel: Constant, input_dim: int) -> Sequence[Term]:
    variance = tf.convert_to_tensor(kernel.variance)
    return [Wave(tf.math.log(variance), tf.zeros([input_dim], variance.dtype))]


@_register(White)
def _white(kernel: White, input_dim: int) -> Sequence[Term]:
    del input_dim
    return [WhiteTerm(tf.convert_to_tensor(kernel.variance))]


@_register(Linear)
def _linear(kernel: Linear, input_dim: int) -> Sequence[Term]:
    return [LinearTerm(on_all_inputs(kernel, kernel.variance, input_dim))]


@_register(Sum)
def _sum(kernel: Sum, input_dim: int) -> Sequence[Term]:
    return [term for part in kernel.kernels for term in terms(part, input_dim)]


@_register(Product)
def _product(kernel: Product, input_dim: int) -> Sequence[Term]:
    return reduce(_products, [terms(part, input_dim) for part in kernel.kernels])


def _products(left: Sequence[Term], right: Sequence[Term]) -> Sequence[Term]:
    return [term for a in left for b in right for term in _multiply_terms(a, b)]


def _multiply_terms(a: Term, b: Term) -> Sequence[Term]:
    if isinstance(a, Wave) and isinstance(b, Wave):
        return multiply(a, b)
    if isinstance(b, Wave):
        a, b = b, a
    if isinstance(a, Wave) and a.frequency is None:
        if isinstance(b, LinearTerm):
            return [LinearWave(a, b.variance)]
        if isinstance(b, LinearWave):
            return [LinearWave(wave, b.variance) for wave in multiply(a, b.wave)]
    raise NoClosedForm(
        "Products of a linear or white kernel have no closed form here, but for those of one linear kernel"
        " with squared exponentials."
    )


def multiply(a: Wave, b: Wave) -> list[Wave]:
    """The product of two waves: one wave, or two where both have a cosine."""
    log_amplitude, precision = a.log_amplitude + b.log_amplitude, a.precision + b.precision
    if a.frequency is None or b.frequency is None:
        return [Wave(log_amplitude, precision, b.frequency if a.frequency is None else a.frequency)]
    half = log_amplitude - math.log(2.0)
    return [Wave(half, precision, a.frequency + sign * b.frequency) for sign in (1.0, -1.0)]


def on_all_inputs(kernel: Kernel, values: tf.Tensor, input_dim: int) -> tf.Tensor:
    """Values for the inputs that a kernel is active on, as values for all: zero for the others."""
    values = tf.convert_to_tensor(values, gpflow.default_float())
    active = np.arange(input_dim)[kernel.active_dims]
    values = tf.broadcast_to(values, [len(active)])
    if len(active) == input_dim and (active == np.arange(input_dim)).all():
        return values
    return tf.linalg.matvec(
        np.eye(input_dim)[:, active].astype(values.dtype.as_numpy_dtype), values
    )
