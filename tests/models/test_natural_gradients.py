"""GPflow's natural gradients on the posteriors that it can update, and advice for the others."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes import disable_check_shapes
from gpflow.keras import tf_keras

import gpflow_deep as gd
from tests.models.contract import X, Y, assert_close, data, fix_draws, make_model

UPDATABLE = ["mean-field", "fully-coupled"]
XI_TRANSFORMS = [gpflow.optimizers.XiNat(), gpflow.optimizers.XiSqrtMeanVar()]


@pytest.mark.parametrize("xi_transform", XI_TRANSFORMS, ids=lambda xi: type(xi).__name__)
@pytest.mark.parametrize("family", UPDATABLE)
def test_small_steps_increase_the_bound(
    family: str, xi_transform: gpflow.optimizers.XiTransform
) -> None:
    model = make_model(family)
    fix_draws(model)
    optimizer = gpflow.optimizers.NaturalGradient(gamma=0.005, xi_transform=xi_transform)
    bounds = [model.maximum_log_likelihood_objective((X, Y))]
    for _ in range(3):
        # One pair a call: GPflow's own shape check wants those of one call to have the same sizes.
        for pair in model.inducing_posterior.variational_params:
            optimizer.minimize(lambda: model.training_loss((X, Y)), [pair])
        bounds.append(model.maximum_log_likelihood_objective((X, Y)))
    assert np.all(np.diff(bounds) > 1e-3)


def test_one_layer_of_a_mean_field_model() -> None:
    """The pairs are those of the layers, in their order; only the given ones change."""
    model = make_model("mean-field", hidden_dims=(2, 3))
    fix_draws(model)
    pairs = model.inducing_posterior.variational_params
    assert [pair[0].shape for pair in pairs] == [(5, 2), (5, 3), (5, 1)]
    before = [pair[0].numpy().copy() for pair in pairs]
    optimizer = gpflow.optimizers.NaturalGradient(gamma=0.02)
    optimizer.minimize(lambda: model.training_loss((X, Y)), pairs[1:2])
    changed = [np.any(pair[0].numpy() != old) for pair, old in zip(pairs, before, strict=True)]
    assert changed == [False, True, False]


@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
@pytest.mark.parametrize("family", UPDATABLE)
def test_one_step_is_exact_where_the_model_is_conjugate(family: str, whiten: bool) -> None:
    X, Y = data(output_dim=2)
    layers = gd.layers.build_layers(X, hidden_dims=(), output_dim=2, num_inducing=5, whiten=whiten)
    model = make_model(family, layers=layers)
    (layer,) = layers
    sgpr = gpflow.models.SGPR(
        (X, Y), layer.kernel, layer.inducing_variable, likelihood=model.likelihood
    )
    optimizer = gpflow.optimizers.NaturalGradient(gamma=1.0)
    for _ in range(2):  # the second step changes nothing
        optimizer.minimize(
            lambda: model.training_loss((X, Y)), model.inducing_posterior.variational_params
        )
        assert_close(model.elbo((X, Y)), sgpr.elbo(), rtol=1e-6)
        assert_close(model.predict_y(X), sgpr.predict_y(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", UPDATABLE)
def test_alternating_with_adam(family: str) -> None:
    """
    The usual recipe: natural gradients for q, Adam for the rest, in one compiled step. By default
    GPflow checks shapes in eager mode only, so that all layers' pairs can go together.
    """
    model = make_model(family, random=False)
    fix_draws(model)
    pairs = model.inducing_posterior.variational_params
    for parameter in (p for pair in pairs for p in pair):
        gpflow.set_trainable(parameter, False)
    assert len(model.trainable_variables) == len(model.parameters) - 2 * len(pairs) - 1
    loss = model.training_loss_closure((X, Y), compile=False)
    natural = gpflow.optimizers.NaturalGradient(gamma=0.1)
    adam = tf_keras.optimizers.Adam(0.01)

    @tf.function(autograph=False)
    def step() -> None:
        natural.minimize(loss, pairs)
        adam.minimize(loss, model.trainable_variables)

    before = loss()
    with disable_check_shapes():
        for _ in range(10):
            step()
    assert loss() < before - 10.0


@pytest.mark.parametrize("family", ["block-structured", "stripes-and-arrow"])
def test_other_structures_say_what_to_do(family: str) -> None:
    posterior = make_model(family).inducing_posterior
    with pytest.raises(
        NotImplementedError, match=f"MeanField.*FullyCoupled.*{type(posterior).__name__}.*Adam"
    ):
        _ = posterior.variational_params
