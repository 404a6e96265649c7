"""Convolutional networks by name: their layers, their initial values, their learning."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

import gpflow_deep as gd
from gpflow_deep.layers.bayesian import BayesianConv2D, connect, random_layers
from gpflow_deep.presets.image_networks import image_network, lenet, resnet8


def _digits() -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(n_class=3, return_X_y=True)
    return (images[:200].reshape([-1, 8, 8, 1]) - 5.0) / 6.0, labels[:200]


def test_networks_of_the_paper() -> None:
    """Eight random layers of CIFAR's size, as many weights as that makes by hand."""
    layers = resnet8(10, 32)
    assert connect(layers, (32, 32, 3)) == (10,)
    random = random_layers(layers)
    assert [layer.fan_in for layer in random] == [3 * 9 + 1, *[32 * 9 + 1] * 6, 32 + 1]
    convolutions = [layer for layer in random if isinstance(layer, BayesianConv2D)]
    assert [layer.output_shape[0] for layer in convolutions] == [32] * 3 + [16] * 2 + [8] * 2
    assert connect(lenet(10, 16), (28, 28, 1)) == (10,)


@pytest.mark.parametrize("posterior", ["global-inducing", "factorised"])
def test_they_learn(posterior: str) -> None:
    images, labels = _digits()
    model = image_network(
        images,
        labels,
        architecture=partial(resnet8, num_pools=1),
        posterior=posterior,
        prior="neal",
        channels=4,
        num_inducing=20,
        num_prediction_samples=5,
    )
    rows = images.reshape([len(images), -1])
    result = gd.training.fit(
        model, (rows, labels[:, None]), steps=30, batch_size=50, learning_rate=0.03, progress=False
    )
    losses = result.history["loss"]
    assert np.mean(losses[-5:]) < 0.98 * np.mean(losses[:5])
    posterior = model.posterior()
    for count in (20, 7):  # compiled from the second on, for any number of points
        assert posterior.predict_y(rows[:count])[0].shape == (count, 3)
        mean, _ = posterior.predict_f(rows[:count])
        np.testing.assert_allclose(mean, model.predict_f(rows[:count])[0], rtol=1e-6, atol=1e-8)
    if posterior == "global-inducing":
        assert model.inducing_inputs.shape == (20, 8, 8, 1)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"posterior": "local"}, "posterior: expected 'factorised' or 'global"),
        ({"labels": np.zeros(3, int)}, r"images, labels: expected shapes \[N, H, W, C\] and \[N\]"),
        ({"num_inducing": 0}, "num_inducing: expected a positive integer"),
        ({"labels": np.full(90, -1)}, "labels: expected classes 0, 1, ..., got -1"),
        ({"labels": np.full(90, np.nan)}, "labels: expected classes 0, 1, ..., got nan"),
        ({"images": np.full([90, 8, 8, 1], np.nan)}, "images: expected finite values"),
        ({"images": np.zeros([0, 8, 8, 1]), "labels": np.zeros(0)}, "images: expected some"),
        ({"num_classes": 2}, "num_classes: expected at least 3, as there is a label 2, got 2"),
        ({"num_classes": 0}, "num_classes: expected a positive integer"),
        ({"labels": np.zeros(90, int)}, "labels: expected at least two classes, got 0 alone"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str) -> None:
    images, labels = _digits()
    arguments = {"images": images[:90], "labels": labels[:90], "channels": 2, **change}
    with pytest.raises(ValueError, match=message):
        image_network(**arguments)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"labels": np.full(200, "1")}, "labels: expected real numbers"),
        ({"architecture": "resnet8"}, "architecture: expected a function such as"),
        ({"likelihood": None}, r"settings: .* classes decide, got \['likelihood'\]"),
    ],
)
def test_arguments_of_a_wrong_type(change: dict[str, Any], message: str) -> None:
    images, labels = _digits()
    with pytest.raises(TypeError, match=message):
        image_network(**{"images": images, "labels": labels, **change})


@pytest.mark.parametrize("kind", [float, np.uint8, np.float32])
def test_classes_of_any_type_of_number(kind: type) -> None:
    images, labels = _digits()
    settings = {"channels": 2, "num_inducing": 5, "num_data": 7}
    small = partial(resnet8, num_pools=1)
    model = image_network(images, labels.astype(kind), architecture=small, **settings)
    assert model.likelihood.num_classes == labels.max() + 1 and model.num_data == 7


@pytest.mark.parametrize("posterior", ["global-inducing", "factorised"])
def test_classes_that_are_missing_among_the_labels(posterior: str) -> None:
    images, labels = _digits()
    some = labels == 0
    model = image_network(
        images[some],
        labels[some],
        architecture=partial(resnet8, num_pools=1),
        posterior=posterior,
        channels=2,
        num_inducing=5,
        num_classes=3,
        num_prediction_samples=2,
    )
    rows = images[:6].reshape(6, -1)
    assert model.predict_y(rows)[0].shape == (6, 3)
    density = model.predict_log_density((rows, labels[:6, None])).numpy()
    assert np.isfinite(density).all() and len(np.unique(labels[:6])) == 3


def test_images_that_are_not_rows_are_told_what_to_become() -> None:
    images, labels = _digits()
    small = partial(resnet8, num_pools=1)
    model = image_network(images, labels, architecture=small, channels=2, num_inducing=5)
    for call in (model.predict_y, model.posterior().predict_y):
        with pytest.raises(ValueError, match=r"Xnew: .*rows of their pixels: .* to \[200, 64\]"):
            call(images)
    with pytest.raises(ValueError, match=r"X of data: .*rows of their pixels: .* to \[200, 64\]"):
        gd.training.fit(model, (images, labels[:, None]), steps=1)
    with pytest.raises(ValueError, match="got \\(200, 8, 8, 2\\).$"):
        model.predict_y(np.repeat(images, 2, axis=-1))


def test_kernels_larger_than_what_pooling_leaves_of_an_image() -> None:
    """Pooled twice, images of 8 x 8 are of 2 x 2, and kernels go around them more than once."""
    images, labels = _digits()
    model = image_network(images, labels, channels=2, num_inducing=5, prior="neal", num_samples=2)
    assert connect(model.layers[:-2], (8, 8, 1)) == (2, 2, 2)
    data = images.reshape(len(images), -1), labels[:, None]
    with tf.GradientTape() as tape:
        loss = model.training_loss(data)
    gradients = tape.gradient(loss, model.trainable_variables)
    assert all(np.isfinite(g).all() and np.any(g) for g in gradients)
