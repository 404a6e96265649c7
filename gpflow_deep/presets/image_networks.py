"""
Bayesian convolutional networks for images of classes, as in Ober & Aitchison 2021, Section 5.4: ResNet-8 and
LeNet with any posterior and prior.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gpflow
import numpy as np

from gpflow_deep.layers.bayesian import (
    Activation,
    AveragePool2D,
    BayesianConv2D,
    BayesianDense,
    Flatten,
    GlobalAveragePool2D,
    MaxPool2D,
    Residual,
)
from gpflow_deep.models import GlobalInducingBNN
from gpflow_deep.posteriors import FactorisedWeights, GlobalInducingWeights
from gpflow_deep.validation import (
    as_real_array,
    check_choice,
    check_inputs,
    check_positive_integer,
)

__all__ = ["image_network", "lenet", "resnet8"]

# The paper's twin: its convolutions draw outputs, position by position, and its objective is no bound.
_POSTERIORS: dict[str, Any] = {
    "factorised": partial(FactorisedWeights, local_reparameterisation=True),
    "global-inducing": GlobalInducingWeights,
}


def resnet8(
    num_classes: int, channels: int = 32, prior: str = "spatial", *, num_pools: int = 2
) -> list[Any]:
    """
    A convolution and three residual blocks of two each, with average pooling between the blocks, an average
    over what is left of the image, and a dense layer; no normalisation. 32 channels for CIFAR-10.

    >>> from gpflow_deep.layers.bayesian import connect
    >>> from gpflow_deep.presets.image_networks import resnet8
    >>> connect(resnet8(10, channels=2, num_pools=1), (8, 8, 1))
    (10,)

    :param num_classes: outputs.
    :param channels: of every convolution.
    :param prior: of the convolutions; that of the dense layer is "neal" where this one is "spatial".
    :param num_pools: after how many of the first blocks there is pooling; one for images of 8 x 8.
    """

    def convolution() -> list[Any]:
        return [BayesianConv2D(channels, prior=prior), Activation("relu")]

    body = convolution()
    for block in range(3):
        body.append(Residual([*convolution(), *convolution()]))
        if block < num_pools:
            body.append(AveragePool2D(2))
    return [*body, GlobalAveragePool2D(), BayesianDense(num_classes, _dense(prior))]


def lenet(num_classes: int, channels: int = 64, prior: str = "spatial") -> list[Any]:
    """
    Two convolutions of 5 x 5 with pooling, and two dense layers. 64 channels for MNIST of 500 images.

    >>> from gpflow_deep.layers.bayesian import connect
    >>> from gpflow_deep.presets.image_networks import lenet
    >>> connect(lenet(10, channels=2), (28, 28, 1))
    (10,)

    :param num_classes: outputs.
    :param channels: of both convolutions, and units of the hidden dense layer.
    :param prior: as for :func:`resnet8`.
    """
    layers: list[Any] = []
    for _ in range(2):
        layers += [BayesianConv2D(channels, 5, prior=prior), Activation("relu"), MaxPool2D(2)]
    dense = _dense(prior)
    hidden = [Flatten(), BayesianDense(channels, dense), Activation("relu")]
    return [*layers, *hidden, BayesianDense(num_classes, dense)]


def _dense(prior: str) -> str:
    return "neal" if prior == "spatial" else prior


def image_network(
    images: np.ndarray,
    labels: np.ndarray,
    *,
    architecture: Callable[..., Sequence[Any]] = resnet8,
    posterior: str = "global-inducing",
    prior: str = "spatial",
    channels: int = 32,
    num_inducing: int = 500,
    num_classes: int | None = None,
    seed: int = 0,
    **settings: Any,
) -> GlobalInducingBNN:
    """
    A network that tells the classes of images; global inducing points start as training images, observed as
    their classes.

    >>> from gpflow_deep.presets.image_networks import image_network, lenet
    >>> images = np.random.default_rng(0).normal(size=(6, 12, 12, 1))
    >>> classes = np.array([0, 1, 2, 0, 1, 2])
    >>> model = image_network(images, classes, architecture=lenet, channels=2, num_inducing=3)
    >>> model.predict_y(images.reshape(6, 144))[0].shape  # rows are the images' pixels
    TensorShape([6, 3])

    :param images: standardised, [N, H, W, C]; data of the model are their rows, [N, H W C].
    :param labels: classes 0, 1, ..., whole numbers of any type, [N].
    :param architecture: :func:`resnet8`, :func:`lenet`, or a function of (num_classes, channels, prior).
    :param posterior: "global-inducing" or "factorised" (with local reparameterisation, which makes of images
        no bound: see :class:`~gpflow_deep.posteriors.FactorisedWeights`).
    :param prior: "spatial", "neal", "standard" or "scale".
    :param channels: of the convolutions.
    :param num_inducing: inducing images, at most N.
    :param num_classes: how many there are, where some may be missing among the labels; by default up to the
        largest of these.
    :param seed: of the choice of inducing images, of initial values and predictions.
    :param settings: others of :class:`~gpflow_deep.models.GlobalInducingBNN`, such as ``num_samples``.
    :raises TypeError: where labels are no numbers, the architecture is no function, or settings have a
        likelihood.
    :raises ValueError: for another posterior, images and labels that do not fit each other, or others than
        these classes.
    """
    images, labels = as_real_array(images, "images"), as_real_array(labels, "labels")
    check_choice(posterior, "posterior", tuple(_POSTERIORS))
    if not callable(architecture):
        raise TypeError(
            f"architecture: expected a function such as resnet8 or lenet, got {architecture!r}."
        )
    if images.ndim != 4 or labels.shape != images.shape[:1]:
        raise ValueError(
            "images, labels: expected shapes [N, H, W, C] and [N], got"
            f" {list(images.shape)} and {list(labels.shape)}."
        )
    fixed = {"layers", "likelihood"} & set(settings)
    if fixed:
        raise TypeError(
            f"settings: expected none that the images' classes decide, got {sorted(fixed)}: make a"
            " GlobalInducingBNN of layers of your own."
        )
    if not images.size:
        raise ValueError(f"images: expected some, got shape {list(images.shape)}.")
    check_inputs(images.reshape([len(images), -1]), "images")
    are_classes = (labels >= 0) & (labels % 1 == 0)
    if not are_classes.all():
        raise ValueError(f"labels: expected classes 0, 1, ..., got {labels[~are_classes][0]}.")
    labels = labels.astype(int)
    classes = int(labels.max()) + 1
    if num_classes is not None:
        if check_positive_integer(num_classes, "num_classes") < classes:
            raise ValueError(
                f"num_classes: expected at least {classes}, as there is a label {classes - 1}, got"
                f" {num_classes}."
            )
        classes = num_classes
    if classes < 2:
        raise ValueError("labels: expected at least two classes, got 0 alone; see num_classes.")
    start: dict[str, Any] = {"input_shape": images.shape[1:]}
    if posterior == "global-inducing":
        M = min(check_positive_integer(num_inducing, "num_inducing"), len(images))
        rows = np.random.default_rng(seed).permutation(len(images))[:M]
        one_hot = np.eye(classes)[labels[rows]]
        start = {"inducing_inputs": images[rows], "pseudo_outputs": one_hot}
    return GlobalInducingBNN(
        architecture(classes, channels, prior),
        gpflow.likelihoods.Softmax(classes),
        posterior=_POSTERIORS[posterior],
        seed=seed,
        **{"num_data": len(images), **start, **settings},
    )
