"""
Deep Gaussian processes for GPflow.

Layers of GPs (:mod:`gpflow_deep.layers`), approximate posteriors over the inducing outputs of all layers
(:mod:`gpflow_deep.posteriors`), and models that train and predict like GPflow's own
(:mod:`gpflow_deep.models`).
"""

from . import layers, metrics, models, posteriors, training

__all__ = ["__version__", "layers", "metrics", "models", "posteriors", "training"]

__version__ = "0.1.0"
