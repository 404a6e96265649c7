"""Inverse Wishart matrices with any real degrees of freedom, by Bartlett's decomposition."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType
from tensorflow_probability.python.internal import tensor_util
from tensorflow_probability.python.internal.parameter_properties import (
    BIJECTOR_NOT_IMPLEMENTED,
    ParameterProperties,
    ShapeParameterProperties,
)

from ..numerics.gamma import gammas_from_normals
from ..validation import as_real_tensor, check_positive_integer

__all__ = ["Bartlett", "InverseWishart"]


class _RealMatrix(tfp.distributions.Distribution):
    """A law of square matrices with degrees of freedom ``df``, all of whose parameters have gradients."""

    def __init__(
        self,
        df: TensorType,
        size: int,
        dtype: tf.DType,
        parameters: dict[str, Any],
        name: str,
        validate_args: bool,
    ) -> None:
        tensor = as_real_tensor(df, "df")
        known = tf.get_static_value(tensor)
        if known is not None and not np.all((known > size - 1) & np.isfinite(known)):
            raise ValueError(f"df: expected finite numbers above {size - 1}, got {known!r}.")
        self._df, self.size = _reference(df, tensor), size
        super().__init__(
            dtype=dtype,
            reparameterization_type=tfp.distributions.FULLY_REPARAMETERIZED,
            validate_args=validate_args,
            allow_nan_stats=True,
            parameters=parameters,
            name=name,
        )

    @property
    def df(self) -> tf.Tensor:
        """Degrees of freedom [...], those of now where they are a variable."""
        return tf.cast(self._df, self.dtype)

    def from_normals(self, normals: TensorType) -> tf.Tensor:
        """Draws as a smooth function of standard normals [..., size, size]."""
        raise NotImplementedError

    def _sample_n(self, n: tf.Tensor, seed: Any = None) -> tf.Tensor:
        shape = tf.concat([[n], self.batch_shape_tensor(), self.event_shape_tensor()], axis=0)
        seed = tfp.random.sanitize_seed(seed)
        return self.from_normals(tf.random.stateless_normal(shape, seed, dtype=self.dtype))

    def _batch_shape(self) -> tf.TensorShape:
        return tf.TensorShape(self._df.shape)

    def _batch_shape_tensor(self) -> tf.Tensor:
        return tf.shape(self.df)

    def _parameter_control_dependencies(self, is_init: bool) -> list[Any]:
        if is_init or not self.validate_args:  # what is known is checked then
            return []
        message = f"df: expected numbers above {self.size - 1}."
        lowest = tf.cast(self.size - 1, self.dtype)
        return [tf.debugging.assert_greater(self.df, lowest, message=message)]

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([self.size, self.size])

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([self.size, self.size])

    def _check_value(self, value: tf.Tensor) -> None:
        if not value.shape[-2:].is_compatible_with(self.event_shape):
            raise ValueError(
                f"value: expected matrices [..., {self.size}, {self.size}], got {value.shape}."
            )

    def _halves(self) -> tf.Tensor:
        """Half the degrees of freedom that each diagonal entry of Bartlett's factor has: [..., size]."""
        return 0.5 * (self.df[..., None] - tf.range(self.size, dtype=self.dtype))


class Bartlett(_RealMatrix):
    r"""
    The lower-triangular Cholesky factor A of a Wishart matrix of identity scale: independent entries,
    :math:`A_{ii}^2 \sim \chi^2_{\nu - i}` (i from 0) and :math:`A_{ij} \sim N(0, 1)` below the diagonal
    (Bartlett 1933; Ober & Aitchison 2021, Eq. 46).

    >>> factors = gd.distributions.Bartlett(tf.constant(4.5, tf.float64), size=2).sample(3, seed=0)
    >>> bool((factors[:, 0, 1] == 0).numpy().all())  # lower triangular
    True

    :param df: degrees of freedom, any real number above size - 1; its shape is the batch shape.
    :param size: number of rows.
    :raises ValueError: for fewer degrees of freedom, where they are known.
    """

    def __init__(
        self, df: TensorType, size: int, *, validate_args: bool = False, name: str = "Bartlett"
    ) -> None:
        parameters = dict(locals())
        size = check_positive_integer(size, "size")
        dtype = _floating(as_real_tensor(df, "df").dtype)
        super().__init__(df, size, dtype, parameters, name, validate_args)

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict[str, Any]:
        return {"df": _degrees_of_freedom(), "size": ShapeParameterProperties()}

    def _default_event_space_bijector(self) -> tfp.bijectors.Bijector:
        return _factors(self.dtype)

    def from_normals(self, normals: TensorType) -> tf.Tensor:
        """Draws as a smooth, increasing function of standard normals [..., size, size], entry by entry."""
        normals = tf.convert_to_tensor(normals)
        gammas = gammas_from_normals(self._halves(), tf.linalg.diag_part(normals))
        return tf.linalg.set_diag(tf.linalg.band_part(normals, -1, 0), tf.sqrt(2.0 * gammas))

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        self._check_value(value)
        halves, diagonal = self._halves(), tf.linalg.diag_part(value)
        below = tf.linalg.set_diag(tf.linalg.band_part(value, -1, 0), tf.zeros_like(diagonal))
        count = self.size * (self.size - 1) / 2
        log_normals = -0.5 * (
            tf.reduce_sum(tf.square(below), axis=[-2, -1]) + count * np.log(2.0 * np.pi)
        )
        log_chis = (
            (2.0 * halves - 1.0) * tf.math.log(diagonal)
            - 0.5 * tf.square(diagonal)
            - (halves - 1.0) * np.log(2.0)
            - tf.math.lgamma(halves)
        )
        return log_normals + tf.reduce_sum(log_chis, axis=-1)

    def _mean(self) -> tf.Tensor:
        return tf.linalg.diag(self._diagonal_mean())

    def _variance(self) -> tf.Tensor:
        ones = tf.ones(self.event_shape, self.dtype)
        below = tf.broadcast_to(
            tf.linalg.band_part(ones, -1, 0),
            tf.concat([self.batch_shape_tensor(), self.event_shape_tensor()], axis=0),
        )
        return tf.linalg.set_diag(
            below, 2.0 * self._halves() - tf.math.square(self._diagonal_mean())
        )

    def _mode(self) -> tf.Tensor:
        """Its diagonal is at zero where there the density has no end."""
        return tf.linalg.diag(tf.sqrt(tf.maximum(2.0 * self._halves() - 1.0, 0.0)))

    def _diagonal_mean(self) -> tf.Tensor:
        halves = self._halves()
        return tf.exp(0.5 * np.log(2.0) + tf.math.lgamma(halves + 0.5) - tf.math.lgamma(halves))


class InverseWishart(_RealMatrix):
    r"""
    The inverse Wishart distribution of positive definite matrices, with density proportional to
    :math:`|X|^{-(\nu + p + 1)/2} \exp(-\tfrac12 \mathrm{tr}\, \Psi X^{-1})`, for real degrees of freedom.

    Draws are :math:`C (A A^T)^{-1} C^T` with C the Cholesky factor of :math:`\Psi` and A by
    :class:`Bartlett`: differentiable in both parameters (Ober & Aitchison 2021, Appendix C). With less than
    half a degree of freedom above p - 1 draws may be nearly singular: the density of such a one is NaN, as
    its smallest eigenvalue was lost to rounding.

    >>> law = gd.distributions.InverseWishart(tf.constant(4.5, tf.float64), tf.eye(2, dtype=tf.float64))
    >>> law.sample(3, seed=0).shape
    TensorShape([3, 2, 2])

    :param df: degrees of freedom nu [...], above p - 1.
    :param scale_tril: the Cholesky factor C [..., p, p] of the scale matrix Psi; the batch shape is what
        those of both broadcast to.
    :raises ValueError: for fewer degrees of freedom, or a factor that is not lower triangular with a positive
        diagonal, where they are known; for shapes that do not broadcast.
    """

    def __init__(
        self,
        df: TensorType,
        scale_tril: TensorType,
        *,
        validate_args: bool = False,
        name: str = "InverseWishart",
    ) -> None:
        parameters = dict(locals())
        tensor = as_real_tensor(scale_tril, "scale_tril")
        shape = tensor.shape
        if shape.rank is not None and (shape.rank < 2 or shape[-1] != shape[-2]):
            raise ValueError(f"scale_tril: expected [..., p, p], got {shape}.")
        known = tf.get_static_value(tensor)
        if known is not None and (
            np.any(np.triu(known, 1)) or not np.all(np.diagonal(known, axis1=-2, axis2=-1) > 0)
        ):
            raise ValueError(
                "scale_tril: expected the Cholesky factor of the scale matrix, lower triangular with a"
                f" positive diagonal, got {known!r}."
            )
        of_df = as_real_tensor(df, "df").shape
        try:
            self._static_batch = tf.broadcast_static_shape(of_df, shape[:-2])
        except ValueError as error:
            raise ValueError(
                f"df: expected a shape that broadcasts with {shape[:-2]}, that of the scales, got {of_df}."
            ) from error
        self._scale_tril = _reference(scale_tril, tensor)
        super().__init__(df, shape[-1], _floating(tensor.dtype), parameters, name, validate_args)

    @property
    def scale_tril(self) -> tf.Tensor:
        """Cholesky factor of the scale matrix [..., p, p], that of now where it is a variable."""
        return tf.cast(self._scale_tril, self.dtype)

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict[str, Any]:
        return {
            "df": _degrees_of_freedom(),
            "scale_tril": ParameterProperties(
                event_ndims=2,
                default_constraining_bijector_fn=lambda: _factors(dtype),
            ),
        }

    def _default_event_space_bijector(self) -> tfp.bijectors.Bijector:
        """As of a Wishart matrix: by the Cholesky factor."""
        return tfp.bijectors.Chain([tfp.bijectors.CholeskyOuterProduct(), _factors(self.dtype)])

    def _batch_shape(self) -> tf.TensorShape:
        return self._static_batch

    def _batch_shape_tensor(self) -> tf.Tensor:
        return tf.broadcast_dynamic_shape(tf.shape(self.df), tf.shape(self.scale_tril)[:-2])

    def from_normals(self, normals: TensorType) -> tf.Tensor:
        """Draws as a smooth function of standard normals [..., p, p]."""
        factor = Bartlett(self.df, self.size).from_normals(normals)
        scale = tf.broadcast_to(self.scale_tril, tf.shape(factor))
        root = tf.linalg.triangular_solve(factor, tf.linalg.matrix_transpose(scale))  # A^-1 C^T
        return tf.matmul(root, root, transpose_a=True)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        self._check_value(value)
        factor = tf.linalg.cholesky(value)
        root = tf.linalg.triangular_solve(factor, self.scale_tril)
        trace = tf.reduce_sum(tf.square(root), axis=[-2, -1])  # of Psi X^-1
        log_det = _log_determinant(factor)
        return (
            0.5 * self.df * (_log_determinant(self.scale_tril) - self.size * np.log(2.0))
            - self._log_multivariate_gamma()
            - 0.5 * (self.df + self.size + 1.0) * log_det
            - 0.5 * trace
        )

    def _scale(self) -> tf.Tensor:
        return tf.matmul(self.scale_tril, self.scale_tril, transpose_b=True)

    def _mean(self) -> tf.Tensor:
        scale = self._scale()
        excess = (self.df - self.size - 1.0)[..., None, None]
        return tf.where(excess > 0.0, scale / excess, np.nan * scale)

    def _variance(self) -> tf.Tensor:
        scale = self._scale()
        diagonal = tf.linalg.diag_part(scale)
        products = diagonal[..., :, None] * diagonal[..., None, :]
        m = (self.df - self.size)[..., None, None]
        variance = (m + 1.0) * tf.square(scale) + (m - 1.0) * products
        variance /= m * tf.square(m - 1.0) * (m - 3.0)
        return tf.where(m > 3.0, variance, np.nan * variance)

    def _mode(self) -> tf.Tensor:
        return self._scale() / (self.df + self.size + 1.0)[..., None, None]

    def _log_multivariate_gamma(self) -> tf.Tensor:
        constant = 0.25 * self.size * (self.size - 1) * np.log(np.pi)
        return constant + tf.reduce_sum(tf.math.lgamma(self._halves()), axis=-1)


def _reference(value: Any, tensor: tf.Tensor) -> Any:
    """What may change later, a variable or a parameter of GPflow, as it is; anything else as a tensor."""
    return value if tensor_util.is_ref(value) else tensor


def _degrees_of_freedom() -> ParameterProperties:
    """Whose least value depends on the size."""
    return ParameterProperties(
        shape_fn=lambda shape: shape[:-2],
        default_constraining_bijector_fn=BIJECTOR_NOT_IMPLEMENTED,
    )


def _factors(dtype: Any) -> tfp.bijectors.Bijector:
    """From vectors to lower triangular matrices with a positive diagonal."""
    return tfp.bijectors.FillScaleTriL(diag_shift=np.finfo(tf.as_dtype(dtype).as_numpy_dtype).eps)


def _floating(dtype: tf.DType) -> tf.DType:
    """The default for whole numbers."""
    return dtype if dtype.is_floating else tf.as_dtype(gpflow.default_float())


def _log_determinant(factor: tf.Tensor) -> tf.Tensor:
    """Of a matrix, by its Cholesky factor."""
    return 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)


@tfp.distributions.RegisterKL(InverseWishart, InverseWishart)
def _kl(q: InverseWishart, p: InverseWishart, name: str | None = None) -> tf.Tensor:
    """E_q[X^-1] = nu Psi^-1, E_q log|X| = log|Psi| - p log 2 - psi_p(nu / 2)."""
    del name
    if q.size != p.size:
        raise ValueError(f"b: expected matrices of size {q.size} like a's, got {p.size}.")
    expected_log_det = (
        _log_determinant(q.scale_tril)
        - q.size * np.log(2.0)
        - tf.reduce_sum(tf.math.digamma(q._halves()), axis=-1)
    )
    ratio = tf.linalg.triangular_solve(q.scale_tril, p.scale_tril)
    trace = tf.reduce_sum(tf.square(ratio), axis=[-2, -1])  # of Psi_p Psi_q^-1

    def log_normaliser(d: InverseWishart) -> tf.Tensor:
        by_scale = 0.5 * d.df * (_log_determinant(d.scale_tril) - d.size * np.log(2.0))
        return by_scale - d._log_multivariate_gamma()

    return (
        log_normaliser(q)
        - log_normaliser(p)
        - 0.5 * (q.df - p.df) * expected_log_det
        - 0.5 * q.df * (q.size - trace)
    )
