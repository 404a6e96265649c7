"""A structure of one's own: every GP coupled with those of the layers next to its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import gpflow_deep as gd


class Neighbours(gd.posteriors.BlockStructured):
    """
    GPs of neighbouring layers are coupled, and what that entails: a transitive pattern has natural gradients.

    :param layers: the layers whose inducing outputs it is over.
    """

    def __init__(self, layers: Sequence[gd.layers.GPLayer], name: str | None = None) -> None:
        layer = np.repeat(np.arange(len(layers)), [each.num_latent_gps for each in layers])
        distance = layer[:, None] - layer
        pattern = (distance == 1) | np.eye(len(layer), dtype=bool)
        super().__init__(layers, gd.posteriors.transitive_closure(pattern), name=name)
