r"""
The psi statistics of any sum of terms: expectations of kernels at inducing inputs under Gaussians.

With h Gaussian, :math:`\psi_0 = E[k(h, h)]`, :math:`\psi_1 = E[k(h, Z)]`,
:math:`\psi_2 = E[k_a(h, Z_a)^T k_b(h, Z_b)]` (Titsias & Lawrence 2010, here also for two kernels and sets of
inducing inputs, as Bui et al. 2016, Appendix G, need them), and the slope of psi1 in E[h].
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.kernels import Kernel

from ..numerics.linalg import cast_all
from .exponentials import Exponentials, features, products, tilted_precision
from .gaussian import Gaussian
from .terms import LinearTerm, LinearWave, NoClosedForm, Term, Wave, WhiteTerm, terms

__all__ = ["psi0", "psi1", "psi1_slope", "psi2"]


@check_shapes(
    "gaussian[0]: [N, D]",
    "return: [N]",
)
def psi0(kernel: Kernel, gaussian: Gaussian) -> tf.Tensor:
    """
    E[k(h, h)].

    >>> gaussian = gd.psi_statistics.Gaussian(tf.constant(X), tf.ones_like(X))
    >>> gd.psi_statistics.psi0(gpflow.kernels.SquaredExponential(variance=2.0), gaussian)[0].numpy()
    2.0

    :raises NoClosedForm: where there is none (see :func:`terms`).
    """
    total = tf.zeros_like(gaussian.mean[:, 0])
    for term in _in_dtype(terms(kernel, gaussian.mean.shape[1]), gaussian.mean.dtype):
        if isinstance(term, Wave):
            total += tf.exp(term.log_amplitude)
        elif isinstance(term, WhiteTerm):
            total += term.variance
        else:
            second = tf.square(gaussian.mean) + gaussian.variance
            value = tf.linalg.matvec(second, term.variance)
            amplitude = term.wave.log_amplitude if isinstance(term, LinearWave) else None
            total += value if amplitude is None else tf.exp(amplitude) * value
    return total


@check_shapes(
    "Z: [M, D]",
    "gaussian[0]: [N, D]",
    "return: [N, M]",
)
def psi1(kernel: Kernel, Z: tf.Tensor, gaussian: Gaussian) -> tf.Tensor:
    """
    E[k(h, Z)].

    >>> gaussian = gd.psi_statistics.Gaussian(tf.constant(X), tf.zeros_like(X))
    >>> kernel, Z = gpflow.kernels.SquaredExponential(), tf.constant(X[::4])
    >>> psi1 = gd.psi_statistics.psi1(kernel, Z, gaussian)
    >>> bool(np.allclose(psi1, kernel(X, Z)))  # inputs without variance
    True

    :raises NoClosedForm: where there is none (see :func:`terms`).
    """
    parts = [_psi1(term, Z, gaussian)[0] for term in _correlated(kernel, Z)]
    return tf.add_n(parts) if parts else _nothing(gaussian, Z)


@check_shapes(
    "Z: [M, D]",
    "gaussian[0]: [N, D]",
    "return: [N, D, M]",
)
def psi1_slope(kernel: Kernel, Z: tf.Tensor, gaussian: Gaussian) -> tf.Tensor:
    """
    The derivatives of psi1 with respect to the mean of h: the covariance of h times them is
    Cov[h, k(h, Z)] (Stein's lemma).

    >>> gaussian = gd.psi_statistics.Gaussian(tf.constant(X), tf.ones_like(X))
    >>> Z = tf.constant(X[::4])
    >>> gd.psi_statistics.psi1_slope(gpflow.kernels.SquaredExponential(), Z, gaussian).shape
    TensorShape([20, 1, 5])

    :raises NoClosedForm: where there is none (see :func:`terms`).
    """
    slopes = [_psi1(term, Z, gaussian)[1] for term in _correlated(kernel, Z)]
    if not slopes:
        return _nothing(gaussian, Z)[:, None, :] * gaussian.mean[:, :, None]
    return tf.add_n(slopes)


@check_shapes(
    "Z: [M, D]",
    "other_Z: [R, D]",
    "gaussian[0]: [N, D]",
    "return: [N, M, R]",
)
def psi2(
    kernel: Kernel, Z: tf.Tensor, other: Kernel, other_Z: tf.Tensor, gaussian: Gaussian
) -> tf.Tensor:
    """
    E[k(h, Z)^T other(h, other_Z)].

    >>> gaussian = gd.psi_statistics.Gaussian(tf.constant(X), tf.ones_like(X))
    >>> kernel, Z = gpflow.kernels.SquaredExponential(), tf.constant(X[::4])
    >>> gd.psi_statistics.psi2(kernel, Z, kernel, Z, gaussian).shape
    TensorShape([20, 5, 5])

    :raises NoClosedForm: where there is none (see :func:`terms`).
    """
    parts = [
        _psi2(a, Z, b, other_Z, gaussian)
        for a in _correlated(kernel, Z)
        for b in _correlated(other, other_Z)
    ]
    if not parts:
        return _nothing(gaussian, Z)[:, :, None] * tf.zeros_like(other_Z[:, 0])
    return tf.add_n(parts)


def _correlated(kernel: Kernel, Z: tf.Tensor) -> Sequence[Term]:
    """The terms of a kernel that inducing outputs have a part in."""
    found = [term for term in terms(kernel, Z.shape[1]) if not isinstance(term, WhiteTerm)]
    return _in_dtype(found, Z.dtype)


def _in_dtype(found: Sequence[Term], dtype: tf.DType) -> Sequence[Term]:
    """Terms in the dtype of what they meet, which may be wider than the kernel's."""
    converted: Sequence[Term] = cast_all(list(found), dtype)
    return converted


def _nothing(gaussian: Gaussian, Z: tf.Tensor) -> tf.Tensor:
    return tf.zeros_like(gaussian.mean[:, :1]) * tf.zeros_like(Z[:, 0])


def _psi1(term: Term, Z: tf.Tensor, gaussian: Gaussian) -> tuple[tf.Tensor, tf.Tensor]:
    """psi1 of one term [N, M], and its derivatives with respect to the mean [N, D, M]."""
    if isinstance(term, LinearTerm):
        scaled = tf.linalg.matrix_transpose(Z * term.variance)  # [D, M]
        slopes = scaled + tf.zeros_like(gaussian.mean)[:, :, None]
        return tf.matmul(gaussian.mean, scaled), slopes
    wave = _wave_of(term)
    functions = Exponentials(
        tf.fill([1, Z.shape[0]], wave.log_amplitude), Z[None], wave.precision[None]
    )
    if isinstance(term, LinearWave):
        E, slopes = _waves(functions, None, _phases(None, Z), gaussian)
        tilted_mean, Q = _tilted(functions, gaussian)
        linear = tf.transpose(Z * term.variance)  # [D, M]
        factor = tf.reduce_sum(tilted_mean * linear, axis=1)  # [N, M]
        turning = linear - tf.matmul(Q, gaussian.times(linear + tf.zeros_like(tilted_mean)))
        return E * factor, slopes * factor[:, None, :] + E[:, None, :] * turning
    assert isinstance(term, Wave)
    return _waves(functions, term.frequency, _phases(term.frequency, Z), gaussian)


def _wave_of(term: Term) -> Wave:
    wave = term.wave if isinstance(term, LinearWave) else term
    assert isinstance(wave, Wave)
    return wave


def _tilted(functions: Exponentials, gaussian: Gaussian) -> tuple[tf.Tensor, tf.Tensor]:
    """The means [N, D, P] of h tilted by each of P exponentials, and Q [N, D, D]."""
    Q = tilted_precision(functions.precision, gaussian)[0]
    Q = Q if Q.shape.rank == 3 else tf.linalg.diag(Q)
    apart = tf.linalg.matrix_transpose(functions.centres[0] - gaussian.mean[:, None, :])
    return gaussian.mean[:, :, None] + gaussian.times(tf.matmul(Q, apart)), Q


def _phases(frequency: tf.Tensor | None, Z: tf.Tensor) -> tf.Tensor:
    return tf.zeros_like(Z[:, 0]) if frequency is None else tf.linalg.matvec(Z, frequency)  # [M]


def _waves(
    functions: Exponentials,
    frequency: tf.Tensor | None,
    phases: tf.Tensor,
    gaussian: Gaussian,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    E[exponential(h) cos(frequency . h - phase)] for one set of P functions, and its derivatives with
    respect to the mean: tilted by an exponential, h is a Gaussian with mean ``h`` and covariance S - S Q S.
    """
    x, y = features(functions, gaussian)
    E = tf.exp(tf.matmul(x, y, transpose_b=True))[0]  # [N, P]
    Q = tilted_precision(functions.precision, gaussian)[0]  # [N, D] or [N, D, D]
    full = Q if Q.shape.rank == 3 else tf.linalg.diag(Q)
    apart = tf.linalg.matrix_transpose(
        functions.centres[0] - gaussian.mean[:, None, :]
    )  # [N, D, P]
    Q_apart = tf.matmul(full, apart)
    if frequency is None:
        return E, Q_apart * E[:, None, :]
    S_frequency = gaussian.times(tf.ones_like(gaussian.mean)[:, :, None] * frequency[:, None])
    Q_S_frequency = tf.matmul(full, S_frequency)  # [N, D, 1]
    damping = tf.linalg.matvec(S_frequency - gaussian.times(Q_S_frequency), frequency, True)
    angle = (
        tf.linalg.matvec(gaussian.mean, frequency)[:, None]
        + tf.matmul(S_frequency, Q_apart, transpose_a=True)[:, 0, :]
        - phases
    )
    E *= tf.exp(-0.5 * damping)
    cosine, sine = E * tf.cos(angle), E * tf.sin(angle)
    turning = frequency[:, None] - Q_S_frequency  # [N, D, 1], d angle / d mean
    return cosine, Q_apart * cosine[:, None, :] - turning * sine[:, None, :]


def _psi2(a: Term, Z: tf.Tensor, b: Term, other_Z: tf.Tensor, gaussian: Gaussian) -> tf.Tensor:
    """psi2 of two terms [N, M, R]."""
    if isinstance(b, LinearTerm):
        # Linear in h on one side: E[k(h, z) h] = Cov[h, k(h, z)] + E[h] E[k(h, z)].
        value, slopes = _psi1(a, Z, gaussian)
        with_input = gaussian.times(slopes) + gaussian.mean[:, :, None] * value[:, None, :]
        return tf.matmul(with_input, other_Z * b.variance, transpose_a=True, transpose_b=True)
    if isinstance(a, LinearTerm):
        return tf.linalg.matrix_transpose(_psi2(b, other_Z, a, Z, gaussian))
    left_wave, right_wave = _wave_of(a), _wave_of(b)
    functions = products(
        left_wave.log_amplitude[None], Z[None], left_wave.precision[None],
        right_wave.log_amplitude[None], other_Z[None], right_wave.precision[None],
    )  # fmt: skip
    M, R = Z.shape[0], other_Z.shape[0]
    if isinstance(a, LinearWave) or isinstance(b, LinearWave):
        if left_wave.frequency is not None or right_wave.frequency is not None:
            raise NoClosedForm(
                "A cosine beside a product with a linear kernel has no closed form here."
            )
        return _linear_products(a, Z, b, other_Z, functions, gaussian)
    a, b = left_wave, right_wave
    if a.frequency is None and b.frequency is None:
        values = [_waves(functions, None, _phases(None, Z), gaussian)[0]]
    elif a.frequency is None or b.frequency is None:
        frequency = b.frequency if a.frequency is None else a.frequency
        left, right = _phases(a.frequency, Z), _phases(b.frequency, other_Z)
        phases = left[:, None] + right  # one of them is zero
        values = [_waves(functions, frequency, tf.reshape(phases, [-1]), gaussian)[0]]
    else:
        # cos x cos y = (cos(x + y) + cos(x - y)) / 2
        left, right = _phases(a.frequency, Z), _phases(b.frequency, other_Z)
        values = []
        for both, phases in (
            (a.frequency + b.frequency, left[:, None] + right),
            (a.frequency - b.frequency, left[:, None] - right),
        ):
            wave, _ = _waves(functions, both, tf.reshape(phases, [-1]), gaussian)
            values.append(0.5 * wave)
    return tf.reshape(tf.add_n(values), [-1, M, R])


def _linear_products(
    a: Term,
    Z: tf.Tensor,
    b: Term,
    other_Z: tf.Tensor,
    functions: Exponentials,
    gaussian: Gaussian,
) -> tf.Tensor:
    """psi2 of two waves at least one of which has a linear factor: moments of the tilted Gaussian."""
    N, D = tf.shape(gaussian.mean)[0], Z.shape[1]
    M, R = Z.shape[0], other_Z.shape[0]
    E, _ = _waves(functions, None, tf.zeros([M * R], Z.dtype), gaussian)
    mean, Q = _tilted(functions, gaussian)
    mean = tf.reshape(mean, [N, D, M, R])
    value = tf.ones([], Z.dtype)
    factors = []
    for term, points, equation in ((a, Z, "ndmr,md->nmr"), (b, other_Z, "ndmr,rd->nmr")):
        if isinstance(term, LinearWave):
            factors.append(points * term.variance)
            value *= tf.einsum(equation, mean, factors[-1])
    if len(factors) == 2:
        S = gaussian.times(tf.eye(D, batch_shape=[N], dtype=Z.dtype))
        tilted = S - gaussian.times(tf.matmul(Q, S))
        value += tf.einsum("md,nde,re->nmr", factors[0], tilted, factors[1])
    return tf.reshape(E, [N, M, R]) * value
