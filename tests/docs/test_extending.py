"""The worked examples of the site are what they say that they are."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.layers.bayesian import Activation
from gpflow_deep.presets import registry

_EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
_RNG = np.random.default_rng(0)
X = _RNG.uniform(-1.0, 1.0, size=(12, 1))
Y = np.sin(3.0 * X) + 0.1 * _RNG.normal(size=X.shape)


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_example_{name}", _EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_structure_is_coupled_with_its_neighbours_and_takes_natural_gradients() -> None:
    layers = gd.layers.build_layers(X, hidden_dims=(2, 1), num_inducing=4)
    q = _load("structure").Neighbours(layers)
    expected = [[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    np.testing.assert_array_equal(q.pattern, expected)
    model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.1), posterior=q)
    before = model.training_loss_closure((X, Y), seed=0, compile=False)
    first = before()
    gd.optimizers.NaturalGradient(0.1).minimize(before, model)
    assert before() < first


def test_layer_is_trained_with_the_network_that_it_is_in() -> None:
    waves = _load("layer").Waves(3)
    layers = [waves, gd.layers.BayesianDense(4), Activation(), gd.layers.BayesianDense(1)]
    model = gd.models.GlobalInducingBNN(layers, gpflow.likelihoods.Gaussian(0.1), X[:6])
    assert waves.output_shape == (6,)
    before = waves.frequencies.numpy()
    gd.training.fit(model, (X, Y), steps=2, progress=False)
    assert (waves.frequencies.numpy() != before).all()


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    registry.names()
    monkeypatch.setattr(registry, "_MODELS", dict(registry._MODELS))
    return _load("family")


def test_family_of_one_layer_with_all_points_is_the_mean_of_an_exact_gp(family: ModuleType) -> None:
    kernel = gpflow.kernels.Matern32()
    layer = gd.layers.GPLayer(kernel, X, 1)
    model = family.PointEstimateDeepGP([layer], gpflow.likelihoods.Gaussian(0.1))
    gpflow.set_trainable(layer, False)
    gpflow.set_trainable(model.likelihood, False)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure((X, Y)), model.trainable_variables
    )
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=0.1)
    np.testing.assert_allclose(model.predict_f(X)[0], exact.predict_f(X)[0], atol=1e-3)


def test_family_goes_by_its_name(family: ModuleType) -> None:
    settings = gd.presets.Settings(num_layers=2, hidden_dim=2, num_inducing=5)
    model = gd.presets.build("point-estimate", X, Y, settings)
    gd.training.fit(model, (X, Y), steps=2, progress=False)
    mean, variance = model.predict_y(X)
    assert mean.shape == variance.shape == (12, 1)
    with pytest.raises(NotImplementedError, match="full_cov"):
        model.predict_f(X, full_cov=True)


class _Doubling(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float64)])
    def predict(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return 2.0 * X, tf.ones_like(X)


class _InSinglePrecision(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="inputs")])
    def predict(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return X[:, :1] - X[:, 1:], tf.ones_like(X[:, :1])


@contextmanager
def _served(model: tf.Module, folder: Path) -> Iterator[str]:
    tf.saved_model.save(model, str(folder))
    server = _load("serve").make_server(str(folder), port=0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _ask(url: str, content: Any) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(Request(url, json.dumps(content).encode())) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_served_model_answers_as_the_model_does(tmp_path: Path) -> None:
    layers = gd.layers.build_layers(X, hidden_dims=(1,), num_inducing=4)
    model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.1))
    module = tf.Module()
    module.posterior = model.posterior()
    module.predict = tf.function(
        module.posterior.predict_y,
        input_signature=[tf.TensorSpec([None, 1], tf.float64)],
        autograph=False,
    )
    with _served(module, tmp_path) as url:
        status, answer = _ask(f"{url}/predict", {"inputs": X.tolist()})
    assert status == 200
    mean, variance = model.predict_y(X)
    np.testing.assert_allclose(answer["mean"], mean)
    np.testing.assert_allclose(answer["variance"], variance)


def test_server_tells_what_is_wrong_with_a_request(tmp_path: Path) -> None:
    with _served(_Doubling(), tmp_path) as url:
        assert _ask(f"{url}/other", {})[0] == 404
        for wrong in ({}, {"inputs": [1.0]}, {"inputs": [["a"]]}, {"inputs": [[float("nan")]]}):
            status, answer = _ask(f"{url}/predict", wrong)
            assert status == 400 and answer["error"].startswith("inputs: ")
        assert _ask(f"{url}/predict", {})[1]["error"].startswith("inputs: expected rows")
        assert _ask(f"{url}/predict", {"inputs": [[1.5]]})[1]["mean"] == [[3.0]]
        status, answer = _ask(f"{url}/predict", {"inputs": [[1.0, 2.0]]})
        assert status == 400
        assert answer["error"] == "inputs: expected finite (None, 1), got shape (1, 2)"


def test_served_model_says_its_own_dtype(tmp_path: Path) -> None:
    with _served(_InSinglePrecision(), tmp_path) as url:
        assert _ask(f"{url}/predict", {"inputs": [[1.5, 0.25]]})[1]["mean"] == [[1.25]]
