"""Numbers that a posterior keeps beside its free ones."""

from __future__ import annotations

import numpy as np
from gpflow.base import Parameter

__all__ = ["Record"]


class Record(Parameter):
    """
    Numbers that are kept with a model and are none of its free ones, whatever is set trainable: a parameter
    only because GPflow's dictionaries of parameters are to hold them.

    :param value: whose type it has.
    """

    def __init__(self, value: np.ndarray) -> None:
        super().__init__(value, dtype=value.dtype, trainable=False)

    @property
    def trainable(self) -> bool:
        return False

    def __int__(self) -> int:
        return int(self.numpy())
