"""Where the numbers that a Gaussian posterior is made of are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from gpflow.base import Parameter

__all__ = ["FreeNumbers", "Positions", "layer_free_numbers"]


class FreeNumbers(NamedTuple):
    """
    A Gaussian N(m, L L^T) over the inducing outputs of several GPs, with its numbers told by their positions
    in the unconstrained values of some parameters, laid end to end (:class:`Positions`).
    """

    mean: Sequence[np.ndarray]
    """Of each GP: [M]."""

    factor: dict[tuple[int, int], np.ndarray]
    """Of the blocks [M, M'] of L that may differ from zero, by GPs (row, column); -1 for an entry of zero."""

    num_outputs: int
    """How many of the GPs, the last ones, are the output layer's."""


class Positions:
    """
    Reads parameters as the positions of their entries: called with a parameter, an array of its shape.

    Every parameter read is laid after those read before.
    """

    def __init__(self) -> None:
        self.parameters: list[Parameter] = []
        self.size = 0

    def __call__(self, parameter: Parameter) -> np.ndarray:
        """
        The positions of a parameter's entries; -1 where its transform puts a zero.

        :raises ValueError: where the transform does more than to move numbers.
        """
        variable, transform = parameter.unconstrained_variable, parameter.transform
        labels = np.arange(1.0, np.prod(variable.shape) + 1.0)
        moved = labels.reshape(variable.shape)
        if transform is not None:
            moved = np.asarray(transform.forward(moved))
        if not np.array_equal(np.sort(moved[moved != 0.0]), labels):
            raise ValueError(
                "var_list: expected parameters with transforms that only move numbers, such as"
                f" gpflow.utilities.triangular(), got {transform} of {parameter.name}."
            )
        positions = np.where(moved > 0.0, moved.astype(np.int32) - 1 + self.size, -1)
        self.parameters.append(parameter)
        self.size += len(labels)
        return positions


def layer_free_numbers(
    q_mu: Parameter, q_sqrt: Parameter, is_output: bool, read: Positions
) -> FreeNumbers:
    """
    Of one layer's independent GPs, with parameters in GPflow's shapes.

    :param q_mu: means [M, T].
    :param q_sqrt: factors [T, M, M].
    """
    means, factors = read(q_mu).T, read(q_sqrt)
    blocks = {(t, t): block for t, block in enumerate(factors)}
    return FreeNumbers(list(means), blocks, len(means) if is_output else 0)
