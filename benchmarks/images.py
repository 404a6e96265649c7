"""
Bayesian convolutional networks on images: accuracy and calibration by posterior, beside the same network
trained for maximum likelihood.

    python benchmarks/images.py --data digits --architecture resnet8-8x8 --channels 8 --num-inducing 100
    GPFLOW_DEEP_DATA=folder python benchmarks/images.py --data cifar10 --float32
    python benchmarks/images.py --data synthetic --steps 3 --float32

`digits` is scikit-learn's; `cifar10`, `mnist` and others are files NAME.npz in the folder that
GPFLOW_DEEP_DATA names, with `images` [N, H, W, C] or [N, H, W], `labels` [N] or [N, 1], `test_images` and
`test_labels`, or with Keras's names `x_train`, `y_train`, `x_test` and `y_test`; `synthetic` are 5000 images
of noise of CIFAR's size, for time and memory. `--num-images 500` trains on as many, of each class alike: the
paper's MNIST of 500 images. Each run adds a line to --output.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras
from sklearn.datasets import load_digits, load_sample_images

import gpflow_deep as gd
from gpflow_deep.experiments.datasets import DATA_VARIABLE
from gpflow_deep.layers.bayesian import Activation, BayesianConv2D, BayesianDense, Residual
from gpflow_deep.presets.image_networks import image_network, lenet, resnet8

METHODS = ("global-inducing", "factorised", "maximum-likelihood")
ARCHITECTURES = {
    "resnet8": resnet8,
    "resnet8-8x8": partial(resnet8, num_pools=1),
    "lenet": lenet,
}

NAMES = (
    ("images", "labels", "test_images", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
)
Images = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def load(name: str, split: int) -> Images:
    """Training and test images [N, H, W, C] with their labels."""
    rng = np.random.default_rng(split)
    if name == "synthetic":
        images = rng.standard_normal([5100, 32, 32, 3])
        labels = np.arange(len(images)) % 10
        return images[:5000], labels[:5000], images[5000:], labels[5000:]
    if name == "digits":
        images, labels = load_digits(return_X_y=True)
        images = images.reshape([-1, 8, 8, 1])
        order = rng.permutation(len(images))
        test, train = order[:360], order[360:]
        parts = images[train], labels[train], images[test], labels[test]
    else:
        parts = from_file(name)
    images, labels, test_images, test_labels = parts
    images, test_images = images.astype(float), test_images.astype(float)
    mean, deviation = images.mean(axis=(0, 1, 2)), images.std(axis=(0, 1, 2))
    return (images - mean) / deviation, labels, (test_images - mean) / deviation, test_labels


def from_file(name: str) -> Images:
    """Those of NAME.npz in the user's folder."""
    folder = os.environ.get(DATA_VARIABLE)
    if folder is None:
        raise SystemExit(f"{DATA_VARIABLE}: expected a folder with {name}.npz, it is not set.")
    path = Path(folder) / f"{name}.npz"
    if not path.is_file():
        raise SystemExit(f"{DATA_VARIABLE}: expected a folder with {name}.npz, there is no {path}.")
    with np.load(path) as data:
        names = next((names for names in NAMES if set(names) <= set(data.files)), None)
        if names is None:
            raise SystemExit(
                f"{path}: expected arrays {' or '.join(map(', '.join, NAMES))}, got {', '.join(data.files)}."
            )
        images, labels, test_images, test_labels = (data[key] for key in names)
    images, test_images = (x[..., None] if x.ndim == 3 else x for x in (images, test_images))
    for key, array in zip(names[::2], (images, test_images)):
        if array.ndim != 4:
            raise SystemExit(
                f"{path}: {key}: expected [N, H, W, C] or [N, H, W], got {array.shape}."
            )
    return images, labels.reshape(-1), test_images, test_labels.reshape(-1)


def some(number: int, images: np.ndarray, labels: np.ndarray, seed: int) -> Any:
    """As many images of each class, or as nearly so as there are, and their labels."""
    order = np.random.default_rng(seed).permutation(len(images))
    # The first of each class, then the second of each, and so on.
    turn = np.zeros(len(order), int)
    for label in np.unique(labels):
        own = labels[order] == label
        turn[own] = np.arange(own.sum())
    chosen = order[np.argsort(turn, kind="stable")[:number]]
    return images[chosen], labels[chosen]


def other_images(like: np.ndarray, seed: int = 0) -> np.ndarray:
    """Pieces of photographs, of the size of these images and standardised as they are: of no class."""
    _, height, width, channels = like.shape
    rng, pieces = np.random.default_rng(seed), []
    photographs = [photo / 255.0 for photo in load_sample_images().images]
    for _ in range(500):
        photo = photographs[rng.integers(len(photographs))]
        top = rng.integers(photo.shape[0] - 2 * height)
        left = rng.integers(photo.shape[1] - 2 * width)
        piece = photo[top : top + 2 * height : 2, left : left + 2 * width : 2]
        pieces.append(piece if channels == 3 else piece.mean(axis=-1, keepdims=True))
    stack = np.stack(pieces)
    return (stack - stack.mean(axis=(0, 1, 2))) / stack.std(axis=(0, 1, 2))


def likelihood_network(layers: list[Any], shape: tuple[int, ...]) -> tf_keras.Model:
    """The same network with weights that are no random variables."""
    inputs = tf_keras.Input(shape)

    def through(layers: list[Any], x: Any) -> Any:
        for layer in layers:
            if isinstance(layer, Residual):
                x = through(layer.layers, x) + through(layer.shortcut, x)
            elif isinstance(layer, BayesianConv2D):
                x = tf_keras.layers.Conv2D(
                    layer.num_outputs, layer.kernel_size, layer.stride, layer.padding
                )(x)
            elif isinstance(layer, BayesianDense):
                x = tf_keras.layers.Dense(layer.num_outputs)(x)
            elif isinstance(layer, Activation):
                x = tf_keras.layers.ReLU()(x)
            else:
                x = tf_keras.layers.Lambda(layer)(x)
        return x

    return tf_keras.Model(inputs, through(layers, inputs))


def train_by_likelihood(model: tf_keras.Model, o: argparse.Namespace, data: Images) -> list[float]:
    """Adam on the cross entropy, with the same batches, steps and rates."""
    images, labels, _, _ = data
    optimizer = tf_keras.optimizers.Adam(schedule(o))
    entropy = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, entropy)
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), o.split)
    batches = batches.repeat().batch(o.batch_size)
    return model.fit(batches, epochs=1, steps_per_epoch=o.steps, verbose=0).history["loss"]


def schedule(o: argparse.Namespace) -> Any:
    """The rate falls to a tenth in the last quarter."""
    boundaries = [max(1, 3 * o.steps // 4)]
    return tf_keras.optimizers.schedules.PiecewiseConstantDecay(
        boundaries, [o.learning_rate, o.learning_rate / 10]
    )


def flip_and_crop(shape: tuple[int, ...], X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> Any:
    """Half of the images mirrored; all moved by up to 4 pixels, with zeros where they were not."""
    images, (_, height, width, _) = tf.reshape(X, [-1, *shape[1:]]), shape
    seeds = tf.random.experimental.stateless_split(seed, 2)
    mirrored = tf.random.stateless_uniform([tf.shape(X)[0], 1, 1, 1], seeds[0]) < 0.5
    images = tf.where(mirrored, images[:, :, ::-1], images)
    images = tf.pad(images, [[0, 0], [4, 4], [4, 4], [0, 0]])
    tops, lefts = tf.unstack(
        tf.random.stateless_uniform([2, tf.shape(X)[0]], seeds[1], maxval=9, dtype=tf.int32)
    )
    rows = tops[:, None] + tf.range(height)
    columns = lefts[:, None] + tf.range(width)
    images = tf.gather(tf.gather(images, rows, batch_dims=1), columns, axis=2, batch_dims=1)
    return tf.reshape(images, tf.shape(X)), Y


def run(method: str, o: argparse.Namespace) -> dict[str, Any]:
    data = load(o.data, o.split)
    if o.num_images is not None:
        data = *some(o.num_images, *data[:2], o.split), *data[2:]
    images, labels, test_images, test_labels = (
        x.astype(gpflow.default_float()) if x.ndim > 1 else x for x in data
    )
    classes = int(max(labels.max(), test_labels.max())) + 1
    others = other_images(images).astype(images.dtype)
    tf_keras.utils.set_random_seed(o.split)
    tf_keras.backend.set_floatx(np.dtype(gpflow.default_float()).name)
    architecture = ARCHITECTURES[o.architecture]
    begin, cpu = time.perf_counter(), time.process_time()
    if method == "maximum-likelihood":
        layers = architecture(classes, o.channels, "neal")
        gd.layers.bayesian.connect(layers, images.shape[1:])
        network = likelihood_network(layers, images.shape[1:])
        losses = train_by_likelihood(network, o, (images, labels, test_images, test_labels))

        def predict(x: np.ndarray) -> np.ndarray:
            return tf.nn.softmax(network.predict(x, verbose=0)).numpy()
    else:
        warm = max(1, int(o.temper * o.steps))
        model = image_network(
            images,
            labels,
            num_classes=classes,
            architecture=architecture,
            posterior=method,
            prior=o.prior,
            channels=o.channels,
            num_inducing=o.num_inducing,
            num_samples=o.num_samples,
            num_prediction_samples=o.test_samples,
            kl_weight=o.kl_weight,
            seed=o.split,
        )
        result = gd.training.fit(
            model,
            (images.reshape([len(images), -1]), labels[:, None]),
            steps=o.steps,
            batch_size=o.batch_size,
            optimizer=tf_keras.optimizers.Adam(schedule(o)),
            tempering=gd.training.Tempering(warm, start=1.0 / warm),
            augmentation=partial(flip_and_crop, images.shape) if o.augment else None,
            seed=o.split,
            progress=False,
        )
        losses = list(np.asarray(result.history["loss"][-50:]) / len(images))
        posterior = model.posterior()

        def predict(x: np.ndarray) -> np.ndarray:
            rows = x.reshape([len(x), -1])
            parts = [
                posterior.predict_y(part)[0] for part in np.array_split(rows, -(-len(x) // 200))
            ]
            return np.concatenate(parts)

    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    probabilities, elsewhere = predict(test_images), predict(others)
    metrics = gd.metrics
    return {
        "data": o.data,
        "split": o.split,
        "num_images": len(images),
        "method": method,
        "architecture": o.architecture,
        "prior": o.prior if method != "maximum-likelihood" else None,
        "channels": o.channels,
        "num_inducing": o.num_inducing if method == "global-inducing" else None,
        "steps": o.steps,
        "learning_rate": o.learning_rate,
        "kl_weight": o.kl_weight if method != "maximum-likelihood" else None,
        "loss_per_point": float(np.mean(losses)),
        "accuracy": metrics.accuracy(test_labels, probabilities),
        "log_loss": metrics.log_loss(test_labels, probabilities),
        "calibration_error": metrics.expected_calibration_error(test_labels, probabilities),
        "auroc": metrics.out_of_distribution_auroc(probabilities, elsewhere),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "dtype": np.dtype(gpflow.default_float()).name,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition("\n")[0])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="resnet8")
    parser.add_argument("--prior", default="neal")
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--num-inducing", type=int, default=500)
    parser.add_argument("--num-samples", type=int, default=1)
    parser.add_argument("--test-samples", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--temper", type=float, default=0.25, help="share of steps to the full KL")
    parser.add_argument(
        "--kl-weight", type=float, default=1.0, help="less: a posterior that is colder"
    )
    parser.add_argument("--num-images", type=int, help="to train on, of each class alike")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--augment", action="store_true", help="flips and crops, as for CIFAR")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--output", type=Path)
    o = parser.parse_args()
    if o.float32:
        gpflow.config.set_default_float(np.float32)
    for method in o.method or METHODS:
        line = json.dumps(run(method, o))
        print(line, flush=True)
        if o.output is not None:
            with o.output.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
