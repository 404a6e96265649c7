r"""
The cliques of a structured Gaussian: small dense triangular matrices in place of one big sparse one.

Factors L that are zero outside a pattern form a group where the pattern is transitive: (i, j) and (j, k) in
it imply (i, k). Column j of a product L h then needs of L and h only the rows and columns that are coupled
with j, :math:`c_j = \{i : (i, j) \text{ in the pattern}\}`. Sets that are the end of a larger one go with it.
What is left are the cliques: every GP for itself (mean-field), the hidden GPs of one index with the output
layer (stripes and arrow), all GPs (fully coupled). Each column is owned by one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..posteriors.block_structured import transitive_closure
from ..posteriors.free_numbers import FreeNumbers

__all__ = ["Batch", "Cliques", "check_transitive"]


class Batch(NamedTuple):
    """B cliques of the same number c of inducing outputs."""

    mean: np.ndarray  # [B, c]: positions in the free numbers
    factor: np.ndarray  # [B, c, c]: likewise; one past the last where an entry is zero
    owned: np.ndarray  # [B, c]: 1.0 for the columns that no other clique gives, else 0.0
    is_output: np.ndarray  # [B]: whether these are the output layer's


class Cliques:
    """
    The cliques of some independent Gaussians.

    :param gaussians: all with positions in the same free numbers.
    :param size: how many free numbers there are.
    """

    def __init__(self, gaussians: Sequence[FreeNumbers], size: int) -> None:
        cliques = [clique for gaussian in gaussians for clique in _cliques(gaussian, size)]
        hidden = sum(not clique.is_output for clique in cliques)
        self.size = size
        self.is_deep = len(gaussians) > 1 or hidden > 0
        """Whether there is more than one layer."""
        # Likelihoods link the output layer's GPs rarely, and weakly: they count as one.
        self.num_unlinked = hidden + (hidden < len(cliques))
        """Into how few sets the columns go so that those of one are linked."""
        by_size: dict[int, list[Batch]] = {}
        for clique in cliques:
            by_size.setdefault(len(clique.mean), []).append(clique)
        self.batches = [Batch(*map(np.stack, zip(*same))) for same in by_size.values()]
        """The cliques, those of one size together."""
        self._mean_positions, self._mean_sources = self._sources_of_mean()
        self._sources = self._sources_of_numbers()

    @property
    def num_means(self) -> int:
        """The number of inducing outputs of all Gaussians."""
        return len(self._mean_positions)

    def split(self, numbers: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """For each batch the parts of mean and factor, or of their gradients: [B, c] and [B, c, c]."""
        padded = tf.pad(numbers, [[0, 1]])
        return [
            (tf.gather(padded, batch.mean), tf.gather(padded, batch.factor))
            for batch in self.batches
        ]

    def total(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """
        Over all cliques the sum of vectors [B, c], as one over all inducing outputs.

        Not by scattering, whose order, and so rounding, differs from run to run on a GPU.
        """
        flat = tf.pad(_flatten(parts), [[0, 1]])
        return tf.reduce_sum(tf.gather(flat, self._mean_sources), axis=1)

    def join(
        self, numbers: tf.Tensor, mean_change: tf.Tensor, factors: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """
        The free numbers of new mean and factor.

        :param numbers: those of the old.
        :param mean_change: as :meth:`total` returns.
        :param factors: for each batch [B, c, c], with the owned columns of the new factor.
        """
        mean = tf.gather(numbers, self._mean_positions) + mean_change
        return tf.gather(tf.concat([mean, _flatten(factors)], axis=0), self._sources)

    def _sources_of_mean(self) -> tuple[np.ndarray, np.ndarray]:
        """The positions [T M] of the mean, and in the cliques laid end to end its sources [T M, most]."""
        flat = np.concatenate([batch.mean.ravel() for batch in self.batches])
        positions, which, counts = np.unique(flat, return_inverse=True, return_counts=True)
        sources = np.full([len(positions), counts.max()], len(flat))
        order = np.argsort(which, kind="stable")
        nth = np.arange(len(flat)) - np.repeat(np.cumsum(counts) - counts, counts)
        sources[which[order], nth] = order
        return positions, sources

    def _sources_of_numbers(self) -> np.ndarray:
        """Where each free number comes from: the mean's, then the cliques' factors laid end to end."""
        sources = np.empty(self.size, np.int32)
        sources[self._mean_positions] = np.arange(len(self._mean_positions))
        offset = len(self._mean_positions)
        for batch in self.batches:
            given = (batch.owned[:, None, :] > 0.0) & (batch.factor < self.size)
            sources[batch.factor[given]] = offset + np.flatnonzero(given)
            offset += batch.factor.size
        return sources


def check_transitive(pattern: np.ndarray) -> None:
    """Raise a ValueError that offers the closure unless factors of this pattern form a group."""
    missing = np.argwhere(transitive_closure(pattern) & ~pattern)
    if not len(missing):
        return
    i, k = np.argwhere((pattern.astype(int) @ pattern > 0) & ~pattern)[0]
    j = int(np.argmax(pattern[i] & pattern[:, k]))
    raise ValueError(
        f"pattern: expected a transitive pattern, whose factors have natural gradients, got one that couples"
        f" the GPs ({j}, {k}) and ({i}, {j}) but not ({i}, {k}). Its transitive closure,"
        " gpflow_deep.posteriors.transitive_closure(pattern), has the entries"
        f" {[tuple(map(int, entry)) for entry in missing]} too."
    )


def _cliques(gaussian: FreeNumbers, size: int) -> list[Batch]:
    """The cliques of one Gaussian, each without the axis of a batch."""
    num_gps = len(gaussian.mean)
    pattern = np.zeros([num_gps, num_gps], dtype=bool)
    pattern[tuple(np.transpose(list(gaussian.factor)))] = True
    check_transitive(pattern)
    coupled = [tuple(np.flatnonzero(column)) for column in pattern.T]
    cliques, given = [], np.zeros(num_gps, dtype=bool)
    for gp in sorted(range(num_gps), key=lambda gp: -len(coupled[gp])):
        if given[gp]:
            continue
        members = coupled[gp]
        owned = [not given[k] and coupled[k] == members[-len(coupled[k]) :] for k in members]
        given[list(members)] |= owned
        sizes = [len(gaussian.mean[k]) for k in members]
        cliques.append(
            Batch(
                mean=np.concatenate([gaussian.mean[k] for k in members]),
                factor=np.block([[_block(gaussian, i, j, size) for j in members] for i in members]),
                owned=np.repeat(np.array(owned, float), sizes),
                is_output=np.array(members[owned.index(True)] >= num_gps - gaussian.num_outputs),
            )
        )
    return cliques


def _block(gaussian: FreeNumbers, row: int, column: int, size: int) -> np.ndarray:
    """The positions of a block of the factor, with zeros at the position `size`."""
    zeros = np.full([len(gaussian.mean[row]), len(gaussian.mean[column])], -1)
    block = gaussian.factor.get((row, column), zeros)
    return np.where(block < 0, size, block)


def _flatten(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)
