"""
Training in one call: minibatches, Adam with decay, natural gradients, early stopping, checkpoints.

Users with a loop of their own need none of it: the models have GPflow's `training_loss` and
`training_loss_closure`.
"""

from .clock import Tempering
from .data import minibatches
from .files import read_files
from .loop import fit
from .progress import FitResult, TrainingError
from .streams import Stream

__all__ = ["FitResult", "Stream", "Tempering", "TrainingError", "fit", "minibatches", "read_files"]
