"""Learned quadrature sites: a way of travelling through the layers without drawing anything."""

from __future__ import annotations

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Module, Parameter

from ..numerics.draws import quasi_normals
from ..validation import check_positive_integer

__all__ = ["QuadratureSites"]

_BOUND = 5.0


class QuadratureSites(Module):
    r"""
    S learned sites in place of standard normal draws, with learned weights (Jankowiak, Pleiss & Gardner 2020,
    *Deep sigma point processes*): the S-th path through the layers is
    :math:`f^l_s = \mu_l + \sigma_l \xi^l_s`, its weight :math:`w_s`; all points share them. Sites stay
    between -5 and 5.

    :param num_sites: S.
    :param widths: number of GPs of each hidden layer.
    :param seed: of the initial sites, spread like normal draws; the weights are equal at the start.
    """

    def __init__(
        self, num_sites: int, widths: Sequence[int], *, seed: int = 0, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        S = check_positive_integer(num_sites, "num_sites")
        self.num_sites = S if widths else 1
        dtype = gpflow.default_float()
        transform = tfp.bijectors.Sigmoid(*np.array([-_BOUND, _BOUND], dtype))
        draws = quasi_normals(S, widths, seed) if widths else []
        limit = 0.99 * _BOUND
        self.nodes = [
            Parameter(np.clip(z, -limit, limit), transform=transform, dtype=dtype) for z in draws
        ]
        # The last site's logit is zero: S weights that sum to one have S - 1 degrees of freedom.
        self.weight_logits = (
            Parameter(np.zeros(self.num_sites - 1), dtype=dtype) if self.num_sites > 1 else None
        )

    def noise(self) -> list[tf.Tensor]:
        """The sites of each hidden layer, [S, 1, T_l]: they stand where draws [S, N, T_l] would."""
        return [tf.convert_to_tensor(nodes)[:, None, :] for nodes in self.nodes]

    def log_weights(self) -> tf.Tensor:
        """Logarithms of the weights, [S]."""
        zero = tf.zeros([1], gpflow.default_float())
        if self.weight_logits is None:
            return zero
        return tf.nn.log_softmax(tf.concat([self.weight_logits, zero], axis=0))
