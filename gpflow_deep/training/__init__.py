"""
Training in one call: minibatches, Adam with decay, natural gradients, early stopping, checkpoints.

Users with a loop of their own need none of it: the models have GPflow's `training_loss` and
`training_loss_closure`.
"""

from .data import minibatches
from .loop import fit
from .progress import FitResult, TrainingError

__all__ = ["FitResult", "TrainingError", "fit", "minibatches"]
