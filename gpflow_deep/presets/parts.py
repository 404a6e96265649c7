"""What the builders of all families make of settings: kernels, likelihoods, widths."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow_probability as tfp
from gpflow.base import Parameter
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import Constant
from gpflow.utilities import positive
from scipy.stats import norm

from gpflow_deep.initialisation import inducing_data
from gpflow_deep.layers import GPLayer, build_layers
from gpflow_deep.numerics.bijectors import in_units_of

from .settings import Settings

__all__ = [
    "ard_kernel",
    "build_gp_layers",
    "class_frequencies",
    "compute_dtype",
    "data_for_inducing",
    "initial_noise",
    "kernel_factory",
    "learn_noise_slowly",
    "likelihood_and_outputs",
    "pseudo_targets",
]

#: One unit of the noise variance's free number is a factor e^10 (Ober & Aitchison 2021, Appendix G): where it
#: follows the function slowly, the function learns to leave the rest to it.
_LOG_SCALE_OF_NOISE = 10.0

_KERNELS = {
    "rbf": gpflow.kernels.SquaredExponential,
    "matern12": gpflow.kernels.Matern12,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
}


def ard_kernel(settings: Settings, input_dim: int, name: str | None = None) -> Kernel:
    """
    A kernel of variance 1 with a lengthscale for every input, the square root of their number: so far
    apart are standardised inputs.

    :param settings: name what keeps its parameters positive, and the kernel.
    :param name: of the kernel, where it is not that of the settings.
    """
    kernel = _KERNELS[name or settings.kernel](lengthscales=np.full(input_dim, input_dim**0.5))
    if settings.positive_bijector != "own":
        transform = positive(base=settings.positive_bijector)
        for scale in ("lengthscales", "variance"):
            setattr(kernel, scale, Parameter(getattr(kernel, scale), transform=transform))
    return kernel


def kernel_factory(
    settings: Settings, own: str | None = None, *, fixed_variance: bool = True
) -> Callable[[int, int], Kernel] | None:
    """
    What `gpflow_deep.layers.build_layers` makes kernels by; `None` where the builder's own are wanted.

    :param settings: name the kernel.
    :param own: the family's kernel by its name; `None` for the builder's.
    :param fixed_variance: whether that of hidden layers stays 1.
    """
    name = own if settings.kernel == "own" else settings.kernel
    if name is None:
        return None

    def make(input_dim: int, layer: int) -> Kernel:
        kernel = ard_kernel(settings, input_dim, name)
        if fixed_variance and layer < settings.num_layers - 1:
            # From the start: set_trainable does not reach a distribution strategy's variables.
            kernel.variance = Parameter(kernel.variance, trainable=False)
        return kernel

    return make


def build_gp_layers(
    X: np.ndarray,
    num_outputs: int,
    settings: Settings,
    seed: int,
    own: str | None = None,
    *,
    fixed_variance: bool = True,
    latent_dim: int | None = None,
) -> list[GPLayer]:
    """
    Layers of the settings' sizes, kernel and inducing inputs.

    :param own: see `kernel_factory`.
    :param fixed_variance: see `kernel_factory`.
    :param latent_dim: see `gpflow_deep.layers.build_layers`.
    """
    return build_layers(
        X,
        settings.hidden_dims(X.shape[1]),
        num_outputs,
        settings.num_inducing,
        kernel_factory=kernel_factory(settings, own, fixed_variance=fixed_variance),
        inducing_init=settings.inducing_init,
        latent_dim=latent_dim,
        seed=seed,
    )


def data_for_inducing(
    layers: list[GPLayer], X: np.ndarray, targets: np.ndarray, settings: Settings, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """
    Inducing inputs [M, D] that are training points, with their targets [M, P], where a global inducing
    posterior starts: at random, or those that the layers have where these are chosen greedily.

    :param layers: made of X by these settings.
    :param targets: of the functions, [N, P].
    """
    if settings.inducing_init == "kmeans":  # centres have no targets
        return inducing_data(X, targets, settings.num_inducing, seed=seed)
    # Not needed to use a model that has its inducing inputs, and slow to import.
    from sklearn.metrics import pairwise_distances_argmin

    rows = pairwise_distances_argmin(layers[0].inducing_variable.Z, X)  # type: ignore[union-attr]
    return X[rows], targets[rows]


def compute_dtype(settings: Settings) -> str | None:
    """What models take by this name."""
    return None if settings.compute_dtype == "own" else settings.compute_dtype


def initial_noise(settings: Settings) -> float:
    """The noise variance that training starts from, clear of its floor."""
    return max(settings.likelihood_variance, 2.0 * settings.noise_floor)


def likelihood_and_outputs(Y: np.ndarray, settings: Settings) -> tuple[Likelihood, int]:
    """
    The likelihood that settings name, and how many GPs the output layer has for it. Each of several columns
    of numbers has a noise of its own.

    :param Y: targets [N, P]; classes 0, 1, ... for "bernoulli" (P = 1) and "softmax" (P = 1), whose number
        is the settings', or the largest and one.
    """
    if settings.likelihood in ("gaussian", "student-t"):
        columns = Y.shape[1]
        each = initial_noise(settings)
        variance = each if columns == 1 else np.full([1, columns], each)
        if settings.likelihood == "student-t":
            return gpflow.likelihoods.StudentT(scale=np.sqrt(variance)), columns
        floor = settings.noise_floor
        return gpflow.likelihoods.Gaussian(variance, variance_lower_bound=floor), columns
    if settings.likelihood == "bernoulli":
        return gpflow.likelihoods.Bernoulli(), 1
    num_classes = settings.num_classes or int(Y.max()) + 1
    return gpflow.likelihoods.Softmax(num_classes), num_classes


def class_frequencies(Y: np.ndarray, num_outputs: int) -> Constant:
    """
    A mean function that says what classes are likely where nothing else is known: as many of each as in the
    data, to begin with. A function that returns to zero says that all are alike.

    :param Y: classes 0, 1, ... [N, 1].
    :param num_outputs: GPs of the output layer, one for two classes.
    """
    counts = np.bincount(Y[:, 0].astype(int), minlength=max(num_outputs, 2)) + 0.5
    shares = counts / counts.sum()
    if num_outputs == 1:
        return Constant(norm.ppf(shares[1:]))
    return Constant(np.log(shares) - np.log(shares).mean())


def learn_noise_slowly(likelihood: Likelihood, settings: Settings) -> Parameter | None:
    """Train a Gaussian likelihood's variance by a tenth of its logarithm; the variance, if there is one."""
    if not isinstance(likelihood, gpflow.likelihoods.Gaussian):
        return None
    by_logarithm = positive(lower=settings.noise_floor, base="exp")
    transform = tfp.bijectors.Chain([by_logarithm, in_units_of(_LOG_SCALE_OF_NOISE)])
    noise = Parameter(likelihood.variance, transform=transform)
    likelihood.variance = noise
    return noise


def pseudo_targets(Y: np.ndarray, num_outputs: int, settings: Settings) -> np.ndarray:
    """
    Values of the functions at training points to start from, [N, num_outputs]: the targets; for classes those
    that lead to them, 1 for the class and -1 for the others.

    :param Y: targets [N, P], or classes [N, 1].
    :param num_outputs: GPs of the output layer.
    :param settings: name the likelihood.
    """
    if settings.likelihood in ("gaussian", "student-t"):
        return Y
    classes = np.array([1]) if num_outputs == 1 else np.arange(num_outputs)
    return np.where(Y == classes, 1.0, -1.0)
