from __future__ import annotations

from dataclasses import replace

import gpflow
import numpy as np
import pytest
import tensorflow_probability as tfp

from gpflow_deep import presets
from gpflow_deep.kernels import StackedStationary
from gpflow_deep.layers.bayesian import Activation, BayesianDense
from gpflow_deep.presets import Settings, scheduled
from gpflow_deep.training.chains import moving_chains


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_built_as_its_settings_say(name: str) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 3)), rng.normal(size=(40, 1))
    preset = presets.get(name)
    settings = presets.recommended(name, 40, 3)
    assert settings == preset.settings(settings) and preset.description
    model = presets.build(name, X, Y, settings)
    # Networks have activations between them.
    layers = [layer for layer in model.layers if not isinstance(layer, Activation)]
    assert len(layers) == settings.num_layers
    if len(layers) == 2 and not name.startswith("meng"):
        assert layers[0].num_latent_gps == (settings.hidden_dim or 3)
    mean, _ = model.predict_f(X[:2])
    assert mean.shape == (2, 1)


@pytest.mark.parametrize("name", ["mean-field", "dspp", "fitc-ep-1", "bnn-local-inducing-neal"])
@pytest.mark.parametrize("likelihood", ["gaussian", "student-t"])
def test_each_column_of_targets_has_its_noise(name: str, likelihood: str) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    settings = presets.recommended(name, 30, 2, likelihood=likelihood)
    model = presets.build(name, X, np.hstack([X, X]), replace(settings, num_inducing=5))
    noise = getattr(model.likelihood, "scale" if likelihood == "student-t" else "variance")
    assert noise.shape == (1, 4)
    alone = presets.build(name, X, X[:, :1], replace(settings, num_inducing=5)).likelihood
    assert getattr(alone, "scale" if likelihood == "student-t" else "variance").shape == ()


@pytest.mark.parametrize("name", ["dspp", "ar2p", "mean-field", "global-inducing", "fitc-ep-2"])
def test_hidden_layers_as_wide_as_the_input(name: str) -> None:
    X = np.random.default_rng(0).normal(size=(30, 4))
    settings = Settings(num_layers=3, hidden_dim=0, num_inducing=5)
    widths = [layer.num_latent_gps for layer in presets.build(name, X, X[:, :1], settings).layers]
    assert widths == ([2, 2, 1] if name == "fitc-ep-2" else [4, 4, 1])


@pytest.mark.parametrize(
    "name", ["svgp", "mean-field", "dspp", "ar2p", "fitc-ep-1", "global-inducing"]
)
@pytest.mark.parametrize("likelihood, latent", [("bernoulli", 1), ("softmax", 3)])
def test_classes(name: str, likelihood: str, latent: int) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 2)), np.arange(30.0)[:, None] % (2 if latent == 1 else 3)
    settings = presets.recommended(name, 30, 2, likelihood=likelihood)
    model = presets.build(name, X, Y, settings)
    assert model.num_latent_gps == latent
    assert np.isfinite(model.predict_log_density((X, Y))).all()


def test_kernels_by_name() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    for kernel, kind in (("matern32", gpflow.kernels.Matern32), ("rbf", gpflow.kernels.RBF)):
        for name in ("svgp", "gp", "mean-field", "fitc-gp"):
            settings = presets.recommended(name, 30, 2)
            settings = presets.get(name).settings(
                Settings(num_layers=settings.num_layers, kernel=kernel, num_inducing=5)
            )
            model = presets.build(name, X, X[:, :1], settings)
            kernels = getattr(model.layers[0].kernel, "kernels", [model.layers[0].kernel])
            assert all(isinstance(k, kind) for k in kernels)


@pytest.mark.parametrize("name, by_logarithms", [("gp", True), ("dspp", True), ("svgp", False)])
def test_what_lengthscales_are_learned_by(name: str, by_logarithms: bool) -> None:
    """GPflow's softplus where nothing was said, so that fits saved before are what they were."""
    X = np.random.default_rng(0).normal(size=(30, 2))
    recommended = presets.recommended(name, 30, 2)
    for settings, exponential in (
        (recommended, by_logarithms),
        (replace(recommended, positive_bijector="own"), False),
        (replace(recommended, positive_bijector="exp"), True),
    ):
        model = presets.build(name, X, X[:, :1], replace(settings, num_inducing=5))
        kind = tfp.bijectors.Exp if exponential else tfp.bijectors.Softplus
        for layer in model.layers:
            kernel = getattr(layer.kernel, "kernel", layer.kernel)
            assert isinstance(kernel.lengthscales.transform, kind)
            np.testing.assert_allclose(kernel.lengthscales, np.full(2, 2**0.5))


@pytest.mark.parametrize("name", ["svgp", "mean-field"])
def test_what_nothing_is_known_of_has_the_frequencies_of_the_classes(name: str) -> None:
    """A function that returned to zero would say that all are alike."""
    X = np.linspace(-1.0, 1.0, 50)[:, None]
    for codes, likelihood in (
        (np.arange(50) < 5, "bernoulli"),
        (np.arange(50) % 10 // 4, "softmax"),
    ):
        Y = codes.astype(float)[:, None]
        settings = Settings(num_layers=1, num_inducing=8, likelihood=likelihood)
        model = presets.build(name, X, Y, settings)
        model.layers[0].kernel.variance.assign(1e-6)
        expected = np.bincount(codes.astype(int)) / 50
        found = model.predict_y(X + 100.0)[0].numpy()
        np.testing.assert_allclose(found - expected[-found.shape[1] :], 0.0, atol=0.02)


def test_the_papers_own_settings() -> None:
    lindinger = presets.get("lindinger2020-stripes-and-arrow")
    assert lindinger.settings() == Settings(num_layers=3, hidden_scale=1e-5)
    X = np.random.default_rng(0).normal(size=(60, 6))
    small = Settings(num_inducing=8, hidden_dim=5, hidden_scale=1e-5)
    model = lindinger.build(X, X[:, :1], small, 0)
    (white,) = (k for k in model.layers[0].kernel.kernels if isinstance(k, gpflow.kernels.White))
    np.testing.assert_allclose(white.variance, 1e-3)
    ober = presets.build("ober2021-global-inducing", X, X[:, :1])
    assert all(layer.kernel.variance.trainable for layer in ober.layers)
    assert [layer.num_latent_gps for layer in ober.layers] == [6, 1]
    bui = presets.get("bui2016-dgp-3").settings()
    assert (bui.hidden_dim, bui.batch_size, bui.num_inducing) == (3, 50, 50)
    havasi = presets.build("havasi2018-sghmc", X, X[:, :1])
    assert (havasi.inducing_posterior.num_chains, havasi.window, havasi.keep_every) == (1, 100, 50)
    # 100 states, 50 steps apart, after 10,000 of 15,000 steps.
    steps = presets.get("havasi2018-sghmc").settings().steps
    chains = moving_chains(None, havasi, steps, 0)
    assert (steps, chains.burn_in) == (15_000, 10_000)
    assert chains.burn_in + havasi.keep_every * havasi.inducing_posterior.num_kept == steps
    free = 0.5 * np.log(0.0498 - 1e-6) / 5.0  # a tenth of the logarithm
    np.testing.assert_allclose(ober.likelihood.variance.unconstrained_variable, free)
    network = presets.build("ober2021-bnn-local-inducing-scale", X, X[:, :1])
    dense = [layer for layer in network.layers if isinstance(layer, BayesianDense)]
    assert [layer.num_outputs for layer in dense] == [50, 50, 1]
    settings = presets.get("ober2021-bnn-factorised-neal").settings()
    assert (settings.num_samples, settings.steps, settings.tempering_steps) == (10, 10_000, 2000)
    for name in ("ober2021-global-inducing", "ober2021-bnn-global-inducing-neal", "bui2016-dgp-2"):
        settings = presets.get(name).settings()
        assert (settings.decay_rate, settings.validation_fraction) == (1.0, 0.0)
    for name in ("ar1", "ar2", "ar2p", "ar2pp"):  # isotropic, of every GP its own
        settings = replace(presets.get(f"meng2024-{name}").settings(), hidden_dim=4)
        first = presets.build(f"meng2024-{name}", X, X[:, :1], settings).layers[0].kernel
        assert isinstance(first, StackedStationary)
        assert first.lengthscales.shape == first.variance.shape == (4,)
    dspp = presets.get("meng2024-dspp").settings()
    model = presets.build("meng2024-dspp", X, X[:, :1], dspp)
    assert [layer.num_latent_gps for layer in model.layers] == [16, 4, 1]
    assert all(layer.mean_function.A.trainable for layer in model.layers)
    assert all(isinstance(layer.kernel, gpflow.kernels.Matern52) for layer in model.layers)


def test_a_papers_preset_is_built_as_its_settings_say() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    own = Settings(num_inducing=8, hidden_dim=2)
    for name in ("lindinger2020-mean-field", "meng2024-mean-field", "meng2024-dspp"):
        usual = presets.build(name, X, X[:, :1], own)
        model = presets.build(
            name,
            X,
            X[:, :1],
            replace(
                own,
                kernel="matern32",
                positive_bijector="exp",
                compute_dtype="float32",
                inducing_init="greedy",
            ),
        )
        for layer in model.layers:
            kernel = getattr(layer.kernel, "kernels", [layer.kernel])[0]
            assert isinstance(kernel, gpflow.kernels.Matern32)
            assert isinstance(kernel.lengthscales.transform, tfp.bijectors.Exp)
            if name.startswith("lindinger"):
                np.testing.assert_allclose(kernel.lengthscales, np.ones(layer.input_dim))
        assert model.compute_dtype != usual.compute_dtype
        points = [m.layers[0].inducing_variable.Z.numpy() for m in (usual, model)]
        assert not np.allclose(*points)


def test_a_papers_preset_has_the_layers_asked_for() -> None:
    name = "lindinger2020-mean-field"
    assert presets.recommended(name, 30, 2).num_layers == 3
    assert presets.recommended(name, 30, 2, num_layers=4).num_layers == 4
    assert presets.recommended("bui2016-gp", 30, 2, num_layers=4).num_layers == 1
    assert presets.recommended("mean-field", 30, 2).num_layers == 2


def test_the_rate_falls_to_a_hundredth() -> None:
    for steps in (1, 50, 1500):
        settings = scheduled(Settings(learning_rate=0.1), steps)
        last = settings.decay_rate ** (steps // settings.decay_steps)
        assert steps < 100 or 0.009 < last < 0.011
        assert settings.steps == steps and settings.validate_every <= steps


def test_networks_are_tempered_for_a_fifth_of_any_run() -> None:
    settings = presets.recommended("bnn-local-inducing-scale", 500, 8)
    assert (settings.hidden_dim, settings.steps, settings.tempering_steps) == (50, 6000, 1200)
    assert scheduled(settings, 101).tempering_steps == 21
    assert scheduled(presets.recommended("dspp", 500, 8), 101).tempering_steps == 0


def test_inducing_points_grow_with_the_data() -> None:
    sizes = [presets.recommended("svgp", rows, 5).num_inducing for rows in (10, 400, 10**6)]
    assert sizes == [20, 80, 256]


@pytest.mark.parametrize("change", [{"kernel": "linear"}, {"likelihood": "poisson"}])
def test_names_that_are_none(change: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        Settings(**change)


@pytest.mark.parametrize(
    "rows, inputs, name", [(-5, 2, "num_rows"), (10.5, 2, "num_rows"), (9, 0, "num_inputs")]
)
def test_sizes_that_are_none(rows: float, inputs: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected a positive integer"):
        presets.recommended("svgp", rows, inputs)


def test_sampled_layers_start_nearly_linear() -> None:
    X = np.random.default_rng(0).normal(size=(30, 4))
    settings = Settings(num_layers=3, num_inducing=5, steps=1000, test_samples=40)
    model = presets.build("sghmc", X, X[:, :1], settings)
    variances = [float(layer.kernel.variance.numpy()) for layer in model.layers]
    assert variances == pytest.approx([0.05, 0.05, 1.0])
    assert all(layer.kernel.variance.trainable for layer in model.layers)
    # Four chains of ten states each, from the last quarter of the steps.
    assert model.inducing_posterior.num_kept == 10 and model.keep_every == 25


def test_only_what_starts_from_nothing_starts_from_noise_at_a_high_rate() -> None:
    new = presets.recommended("mean-field", 100, 3)
    started = presets.recommended("mean-field", 100, 3, started=True)
    assert (new.likelihood_variance, new.learning_rate) == (1.0, 0.1)
    assert (started.likelihood_variance, started.learning_rate) == (0.1, 0.05)
    # A predictive objective loses on some data what it gains on others.
    assert presets.recommended("dspp", 100, 3).likelihood_variance == 0.1


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", presets.names())
def test_data_that_are_not_finite_are_refused_by_name(name: str, value: float) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    broken = X.copy()
    broken[3, 0] = value
    rows = r"expected finite values, got NaN or infinity in 1 of 30 rows \(first: row 3\)"
    with pytest.raises(ValueError, match=f"X: {rows}"):
        presets.build(name, broken, X[:, :1])
    with pytest.raises(ValueError, match=f"Y: {rows}"):
        presets.build(name, X, broken[:, :1])
