"""Layers with the initial values of the papers, from data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import gpflow
import numpy as np
from gpflow.base import Parameter, TensorType
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent

from ..initialisation import (
    greedy_inducing_inputs,
    kmeans_inducing_inputs,
    linear_mean_function,
)
from ..kernels.independent import check_kernel
from ..validation import (
    check_choice,
    check_inputs,
    check_positive_integer,
    check_positive_integers,
    check_positive_number,
    check_seed,
)
from .amortized import AmortizedGPLayer
from .gp_layer import GPLayer

__all__ = ["build_amortized_layers", "build_layers", "build_separate_layers"]

KernelFactory = Callable[[int, int], Kernel]


def _ard_squared_exponential(input_dim: int, layer: int) -> Kernel:
    del layer
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(input_dim, input_dim**0.5))


def build_layers(
    X: TensorType,
    hidden_dims: Sequence[int] = (5, 5),
    output_dim: int = 1,
    num_inducing: int | Sequence[int] = 128,
    *,
    kernel_factory: KernelFactory | Kernel | None = None,
    white_noise: float | None = None,
    whiten: bool = True,
    inducing_init: str = "kmeans",
    latent_dim: int | None = None,
    seed: int = 0,
) -> list[GPLayer]:
    """
    Layers for data ``X``, with the initial values of Lindinger et al. 2020 and Salimbeni & Deisenroth
    2017: inducing inputs by k-means; a squared exponential kernel of variance 1, fixed in hidden layers,
    with a lengthscale for every input, the square root of their number at the start (the papers' 1 makes
    points at usual distances independent, and ends in worse optima); in hidden layers a fixed linear mean
    function (identity where the widths agree, principal components where the layer narrows, zero
    padding where it widens), zero at the output; deeper inducing inputs are the first ones mapped
    through these means.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(3, 2), output_dim=1, num_inducing=5)
    >>> [(layer.input_dim, layer.num_latent_gps) for layer in layers]
    [(1, 3), (3, 2), (2, 1)]

    :param X: training inputs [N, D], scaled to about unit variance.
    :param hidden_dims: number of GPs of every hidden layer; ``()`` for a sparse GP. As many as inputs keep
        all of the input, by the identity means, which away from the data is worth its price; fewer cost less.
    :param output_dim: number of GPs of the last layer.
    :param num_inducing: inducing points M of every layer, or of each; at most the number of distinct inputs
        is used.
    :param kernel_factory: makes the kernel of a layer from (input dimension, layer index); or one kernel, of
        which every layer gets a copy.
    :param white_noise: variance of a ``White`` kernel to add in hidden layers; none by default.
    :param whiten: see :class:`GPLayer`.
    :param inducing_init: how the first layer's inducing inputs are chosen: ``"kmeans"``, as the papers do, or
        ``"greedy"`` (:func:`~gpflow_deep.initialisation.greedy_inducing_inputs`) under its kernel, of one
        output.
    :param latent_dim: number of latent variables that come after the inputs
        (:class:`~gpflow_deep.models.LatentVariableDeepGP`): the layers are for D and so many inputs, with
        draws from their standard normal prior in the place of values; none by default. Hidden layers of as
        many GPs as D and these keep all of them.
    :param seed: seed of k-means.
    :raises ValueError: where X is not a finite, non-empty matrix, or a width or ``white_noise`` is not
        positive, or white noise is to be added to a multi-output kernel, or ``inducing_init`` is another
        word.
    :raises TypeError: where X are no numbers, ``hidden_dims`` no sequence, ``kernel_factory`` a kernel's
        class, or what it makes no kernel.
    """
    X = check_inputs(X, "X")
    widths = _widths(hidden_dims, output_dim)
    sizes = _per_layer(num_inducing, len(widths))
    make_kernel = _kernel_maker(kernel_factory) or _ard_squared_exponential
    if latent_dim is not None:
        shape = len(X), check_positive_integer(latent_dim, "latent_dim")
        latents = np.random.default_rng(check_seed(seed)).standard_normal(shape)
        X = np.concatenate([X, latents.astype(X.dtype)], axis=1)
    check_choice(inducing_init, "inducing_init", ("kmeans", "greedy"))
    if white_noise is not None:
        white_noise = check_positive_number(white_noise, "white_noise")

    layers = []
    for index, width in enumerate(widths):
        hidden = index < len(widths) - 1
        kernel = make_kernel(X.shape[1], index)
        if index == 0:
            centres = {
                size: kmeans_inducing_inputs(X, size, kernel=kernel, seed=seed)
                if inducing_init == "kmeans"
                else greedy_inducing_inputs(X, size, kernel, seed=seed)
                for size in set(sizes)
            }
        if hidden:
            if kernel_factory is None:
                # From the start: set_trainable does not reach a distribution strategy's variables.
                kernel.variance = Parameter(kernel.variance, trainable=False)
            if white_noise is not None:
                if isinstance(kernel, MultioutputKernel):
                    raise ValueError(
                        f"white_noise: expected None for the {type(kernel).__name__} kernel of layer"
                        f" {index}; add White to each of its kernels."
                    )
                kernel = kernel + gpflow.kernels.White(white_noise)
        mean_function = linear_mean_function(X, width) if hidden else None
        layers.append(
            GPLayer(
                kernel,
                centres[sizes[index]].copy(),
                width,
                mean_function,
                whiten=whiten,
                name=f"layer_{index}",
            )
        )
        if mean_function is not None:
            X = np.asarray(mean_function(X))
            centres = {size: np.asarray(mean_function(Z)) for size, Z in centres.items()}
    return layers


def build_amortized_layers(
    input_dim: int,
    hidden_dims: Sequence[int] = (16, 4),
    output_dim: int = 1,
    num_inducing: int | Sequence[int] = (8, 4, 4),
    *,
    kernel_factory: KernelFactory | Kernel | None = None,
    full_covariance: bool = False,
    seed: int = 0,
) -> list[AmortizedGPLayer]:
    """
    Layers whose inducing points are functions of their inputs, as in Meng & Zhang 2024: its widths, numbers
    of inducing points, Matérn-5/2 kernels with a variance and a lengthscale for each GP, networks and zero
    mean functions. The lengthscales start at the square root of the number of inputs.

    >>> layers = gd.layers.build_amortized_layers(3, hidden_dims=(4,), num_inducing=(8, 4))
    >>> [(layer.input_dim, layer.num_latent_gps) for layer in layers]
    [(3, 4), (4, 1)]

    :param input_dim: dimension of the inputs, scaled to about unit variance.
    :param hidden_dims: number of GPs of every hidden layer; ``()`` for one layer.
    :param output_dim: number of GPs of the last layer.
    :param num_inducing: inducing points of an input: of each layer, or one number for all.
    :param kernel_factory: makes the kernel of a layer from (input dimension, layer index); or one kernel, of
        which every layer gets a copy.
    :param full_covariance: see :class:`AmortizedGPLayer`.
    :param seed: of the networks' initial values.
    :raises ValueError: where a number is not positive, or not every layer has its inducing points.
    :raises TypeError: where ``kernel_factory`` is a kernel's class, or what it makes no kernel.
    """
    dims = [check_positive_integer(input_dim, "input_dim"), *_widths(hidden_dims, output_dim)]
    sizes = _per_layer(num_inducing, len(dims) - 1)
    make_kernel, seed = _kernel_maker(kernel_factory), check_seed(seed)
    return [
        AmortizedGPLayer(
            make_kernel(d_in, index) if make_kernel else None,
            size,
            d_in,
            d_out,
            full_covariance=full_covariance,
            seed=seed + 3 * index,
            name=f"layer_{index}",
        )
        for index, (size, d_in, d_out) in enumerate(zip(sizes, dims, dims[1:]))
    ]


def _kernel_maker(kernel_factory: KernelFactory | Kernel | None) -> KernelFactory | None:
    """A factory, also of copies of one kernel; calling a kernel or its class would be something else."""
    if isinstance(kernel_factory, Kernel):
        kernel = kernel_factory
        return lambda input_dim, layer: copy.deepcopy(kernel)
    if isinstance(kernel_factory, type) or not (kernel_factory is None or callable(kernel_factory)):
        raise TypeError(
            "kernel_factory: expected a function of (input dimension, layer index) that makes a kernel, such"
            " as lambda input_dim, layer: gpflow.kernels.Matern52(lengthscales=np.ones(input_dim)), or a"
            f" kernel to copy, got {kernel_factory!r}."
        )
    return kernel_factory


def _per_layer(num_inducing: int | Sequence[int], num_layers: int) -> list[int]:
    """The inducing points of each layer."""
    if isinstance(num_inducing, (Sequence, np.ndarray)):
        sizes = check_positive_integers(num_inducing, "num_inducing")
    else:
        sizes = [check_positive_integer(num_inducing, "num_inducing")] * num_layers
    if len(sizes) != num_layers:
        raise ValueError(
            f"num_inducing: expected one number, or one for each of {num_layers} layers, got"
            f" {num_inducing!r}."
        )
    return sizes


def build_separate_layers(
    X: TensorType,
    hidden_dims: Sequence[int] = (2,),
    output_dim: int = 1,
    num_inducing: int = 50,
    *,
    kernel_factory: KernelFactory | Kernel | None = None,
    seed: int = 0,
) -> list[GPLayer]:
    """
    Layers in which every GP has its own kernel and inducing inputs, with initial values after Bui et al.
    2016: zero mean functions; in the first layer inducing inputs by k-means, different ones for each GP, and
    in higher ones within [-1, 1], where smooth functions of a lengthscale of 1 have their values. Those of
    the first layer are the square root of the number of inputs, for the median distance of the paper.

    Hidden functions of variance 1 without a mean function have to be learned from nothing, which a moment
    matching model does well and a sampled one does not: :func:`build_layers` is for those.

    >>> layers = gd.layers.build_separate_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> [len(layer.kernel.kernels) for layer in layers]
    [2, 1]

    :param X: training inputs [N, D], scaled to about unit variance.
    :param hidden_dims: number of GPs of every hidden layer; ``()`` for a sparse GP.
    :param output_dim: number of GPs of the last layer.
    :param num_inducing: inducing points M of every GP; at most the number of distinct inputs is used in the
        first layer.
    :param kernel_factory: makes a kernel from (input dimension, layer index); or one kernel, of which every
        GP gets a copy.
    :param seed: of k-means and of the higher layers' inducing inputs.
    :raises ValueError: where X is not a finite, non-empty matrix, or a width is not positive.
    :raises TypeError: where X are no numbers, ``hidden_dims`` no sequence, ``kernel_factory`` a kernel's
        class, or what it makes no kernel.
    """
    X = check_inputs(X, "X")
    widths = _widths(hidden_dims, output_dim)
    M = check_positive_integer(num_inducing, "num_inducing")
    rng = np.random.default_rng(check_seed(seed))
    make_kernel = _kernel_maker(kernel_factory) or _squared_exponential_of_layer
    layers = []
    for index, (input_dim, width) in enumerate(zip([X.shape[1], *widths], widths)):
        kernels = [make_kernel(input_dim, index) for _ in range(width)]
        if index == 0:
            Zs = [
                kmeans_inducing_inputs(X, M, kernel=kernel, seed=seed + gp)
                for gp, kernel in enumerate(kernels)
            ]
        elif input_dim == 1:
            Zs = [np.linspace(-1.0, 1.0, M, dtype=X.dtype)[:, None] for _ in range(width)]
        else:
            Zs = [rng.uniform(-1.0, 1.0, [M, input_dim]).astype(X.dtype) for _ in range(width)]
        points = [InducingPoints(Z) for Z in Zs]
        layers.append(
            GPLayer(
                SeparateIndependent([check_kernel(kernel, 1) for kernel in kernels]),
                SeparateIndependentInducingVariables(points),
                width,
                name=f"layer_{index}",
            )
        )
    return layers


def _squared_exponential_of_layer(input_dim: int, layer: int) -> Kernel:
    lengthscale = input_dim**0.5 if layer == 0 else 1.0
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(input_dim, lengthscale))


def _widths(hidden_dims: Sequence[int], output_dim: int) -> list[int]:
    widths = check_positive_integers(hidden_dims, "hidden_dims")
    return [*widths, check_positive_integer(output_dim, "output_dim")]
