"""What a natural gradient step is: against brute force, GPflow's, and its own definitions."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm

import gpflow_deep as gd
from gpflow_deep.optimizers import NaturalGradient
from gpflow_deep.optimizers.natural_gradient import clipped_quadratic, closed_form
from tests import brute_force as bf
from tests.models.contract import X, Y, data, fix_draws, make_model
from tests.models.structured_problem import (
    STRUCTURES,
    block_pattern,
    expand,
    make_posterior,
    make_problem,
)
from tests.optimizers.gaussians import (
    covariance,
    kl,
    make_q,
    nonlinear_loss,
    quadratic_loss,
    random_precision,
    reference_step,
    values_and_gradients,
)
from tests.training.models import make_svgp

WIDTHS = (2, 1, 2)


def step(q: gd.posteriors.InducingPosterior, loss: Callable, gamma: float, **kwargs: float) -> None:
    """One step, of the size it is told: no trust region, no damping."""
    optimizer = NaturalGradient(gamma, **{"mean_gamma": gamma, "max_kl": None, **kwargs})
    optimizer.minimize(lambda: loss(*q.dense()), q)


def assert_is(
    q: gd.posteriors.InducingPosterior, mean: np.ndarray, scale: np.ndarray, rtol: float = 1e-8
) -> None:
    actual_mean, actual_scale = q.dense()
    np.testing.assert_allclose(actual_mean, mean, rtol=rtol, atol=0.1 * rtol)
    np.testing.assert_allclose(actual_scale, scale, rtol=rtol, atol=0.1 * rtol)


@settings(max_examples=20, deadline=None)
@given(
    layers=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=4),
    structure=st.sampled_from(STRUCTURES),
    gamma=st.floats(0.01, 0.3),
    seed=st.integers(0, 2**16),
)
def test_step_is_the_reference_on_the_dense_factor(
    layers: list[tuple[int, int]], structure: str, gamma: float, seed: int
) -> None:
    """Any transitive pattern, layers of any widths and numbers of points."""
    widths, num_inducing = zip(*layers)
    q = make_q(structure, widths, seed, num_inducing)
    loss = quadratic_loss(q, seed)  # its W is positive definite
    expected = reference_step(*values_and_gradients(q, loss), q._dense_mask(), gamma, 0.5 * gamma)
    step(q, loss, gamma, mean_gamma=0.5 * gamma)
    assert_is(q, *expected)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_direction_is_that_of_the_fisher_matrix(structure: str) -> None:
    """Of all free entries of m and L by brute force: no local coordinates, no cliques."""
    q = make_q(structure, (2, 2, 1), seed=3, num_inducing=(2, 3, 2))
    loss = nonlinear_loss(q)
    mean, scale, G_m, G_L = values_and_gradients(q, loss)
    entries = np.argwhere(q._dense_mask())
    precision = np.linalg.inv(scale @ scale.T)
    changes = []  # of the covariance with each entry, times the precision
    for i, j in entries:
        change = np.zeros_like(scale)
        change[i] += scale[:, j]
        changes.append(precision @ (change + change.T))
    fisher = 0.5 * np.einsum("aij,bji->ab", changes, changes)
    direction = np.zeros_like(scale)
    direction[tuple(entries.T)] = np.linalg.solve(fisher, G_L[tuple(entries.T)])

    size = 1e-8
    step(q, loss, size)
    new_mean, new_scale = q.dense()
    np.testing.assert_allclose(
        (mean - new_mean) / size, scale @ scale.T @ G_m, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose((scale - new_scale) / size, direction, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gamma", [0.01, 0.2, 1.0])
def test_fully_coupled_step_is_gpflows(gamma: float) -> None:
    """Salimbeni, Eleftheriadis & Hensman (2018), for every step size."""
    ours, gpflows = (make_q("fully-coupled", WIDTHS) for _ in range(2))
    loss = quadratic_loss(ours) if gamma == 1.0 else nonlinear_loss(ours)
    step(ours, loss, gamma)
    gpflow.optimizers.NaturalGradient(gamma).minimize(
        lambda: loss(*gpflows.dense()), gpflows.variational_params
    )
    assert_is(ours, *gpflows.dense(), rtol=1e-7)


def test_mean_field_step_is_gpflows_layer_by_layer() -> None:
    """On a model, whose hidden layers are damped only at larger steps."""
    ours, gpflows = (make_model("mean-field", hidden_dims=(2, 3)) for _ in range(2))
    for model in (ours, gpflows):
        fix_draws(model)
        q = model.inducing_posterior
        mean, scale = (np.asarray(part) for part in q.dense())
        # Well-conditioned: GPflow inverts the covariances.
        q.assign_dense(mean, 0.1 * np.tril(scale, -1) + 0.3 * np.eye(len(mean)))
    NaturalGradient(0.05, max_kl=None).minimize(lambda: ours.training_loss((X, Y)), ours)
    pairs = gpflows.inducing_posterior.variational_params
    with tf.GradientTape() as tape:
        loss = gpflows.training_loss((X, Y))
    gradients = tape.gradient(loss, [p.unconstrained_variable for pair in pairs for p in pair])
    optimizer = gpflow.optimizers.NaturalGradient(0.05)
    for pair, slopes in zip(pairs, zip(gradients[::2], gradients[1::2]), strict=True):

        def linear(pair: tuple = pair, slopes: tuple = slopes) -> tf.Tensor:
            """GPflow takes losses only: one with the gradients of before any step."""
            products = [g * p.unconstrained_variable for p, g in zip(pair, slopes, strict=True)]
            return tf.add_n([tf.reduce_sum(product) for product in products])

        optimizer.minimize(linear, [pair])
    assert_is(ours.inducing_posterior, *gpflows.inducing_posterior.dense(), rtol=1e-5)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_factor_lands_on_the_optimum_of_a_conjugate_problem(structure: str) -> None:
    """In one step of size 1, the mean too where all GPs are coupled; else it converges when damped."""
    q = make_q(structure, WIDTHS)
    # A custom pattern's sets are not all cliques: what is not in it is not known of the precision.
    exact = structure != "custom"
    loss = quadratic_loss(q)
    step(q, loss, 1.0)
    *_, G_m, G_L = values_and_gradients(q, loss)
    if exact:
        np.testing.assert_allclose(G_L, 0.0, atol=1e-9)
    assert (np.abs(G_m).max() < 1e-9) == (structure == "fully-coupled")
    optimizer = NaturalGradient(1.0, max_kl=None)
    minimize = tf.function(lambda: optimizer.minimize(lambda: loss(*q.dense()), q), autograph=False)
    for _ in range(300):
        minimize()
    precision, linear = random_precision(len(G_m))
    np.testing.assert_allclose(q.dense()[0], np.linalg.solve(precision, linear), atol=1e-4)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_step_does_not_depend_on_whitening(structure: str) -> None:
    widths = (2, 1)
    pattern = gd.posteriors.transitive_closure(block_pattern(structure, widths))
    whitened, unwhitened = (make_problem(widths, pattern, whiten=w, seed=5) for w in (True, False))
    results = []
    for problem in (whitened, unwhitened):
        model = problem.model(make_posterior(structure, pattern))
        model.inducing_posterior.assign_dense(
            *((problem.mean, problem.factor) if problem.whiten else whitened.q_u)
        )
        noise = problem.noise()
        NaturalGradient(0.1).minimize(
            lambda model=model, noise=noise: -model.elbo(whitened.data, noise),  # noqa: B023
            model,
        )
        mean, scale = (np.asarray(part) for part in model.inducing_posterior.dense())
        if problem.whiten:
            mean, scale = bf.unwhiten(problem.layers, mean, scale, problem.jitter)
        results.append((mean, scale))
    assert np.abs(results[0][0] - whitened.q_u[0]).max() > 1e-2
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("structure", ["mean-field", "fully-coupled"])
def test_step_does_not_depend_on_which_factor_of_a_covariance(structure: str) -> None:
    """Nothing keeps the diagonal positive in Adam's steps."""
    one, other = (make_q(structure, WIDTHS) for _ in range(2))
    loss = nonlinear_loss(one)
    for parameter in [other.q_sqrt] if structure == "fully-coupled" else other.q_sqrt:
        value = parameter.numpy()
        value[..., ::2] *= -1.0
        parameter.assign(value)
    for q in (one, other):
        step(q, loss, 0.1)
    np.testing.assert_allclose(other.dense()[0], one.dense()[0], rtol=1e-9)
    np.testing.assert_allclose(covariance(other), covariance(one), rtol=1e-9, atol=1e-12)


@given(
    structure=st.sampled_from(STRUCTURES),
    widths=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    seed=st.integers(0, 2**16),
)
def test_retractions_are_the_exponential_to_first_and_to_second_order(
    structure: str, widths: list[int], seed: int
) -> None:
    pattern = gd.posteriors.transitive_closure(block_pattern(structure, widths, seed))
    mask = np.tril(expand(pattern, np.full(len(pattern), 2)))
    g = np.random.default_rng(seed).standard_normal(mask.shape) * mask
    direction = g - 0.5 * np.diag(np.diag(g))
    errors = []
    for gamma in (1e-2, 5e-3):
        h, good = closed_form(g[None], gamma)
        assert np.all(good)
        quadratic = clipped_quadratic(g[None], gamma, np.array([np.inf]))
        exact = expm(-gamma * direction)
        errors.append([np.abs(x[0] - exact).max() for x in (h, quadratic)])
        assert not np.any(quadratic[0].numpy()[~mask])
    (first, second), (first_half, second_half) = errors
    assert first < 1e-2 * np.abs(g).max() * len(g)
    assert first_half < first / 3.0 and second_half < second / 6.0 + 1e-15


def test_clipped_quadratic_is_bounded() -> None:
    g = np.tril(1e6 * np.random.default_rng(0).standard_normal([3, 8, 8]))
    h = clipped_quadratic(g, 0.1, np.array([np.inf, 0.1, 1e-3])).numpy()
    diagonal = np.diagonal(h, axis1=1, axis2=2)
    assert np.all(diagonal >= 0.5)
    steps = np.linalg.norm(h - np.eye(8), axis=(1, 2))
    assert np.all(np.diff(steps) < 0.0) and steps[-1] < 0.05


@pytest.mark.parametrize("part", ["diagonal", "below it", "all"])
def test_clipped_quadratic_goes_as_far_as_it_may(part: str) -> None:
    """By the divergence itself: of small steps there is nothing beyond the second order."""
    size, max_kl = 5, 1e-8
    g = np.tril(np.random.default_rng(0).standard_normal([size, size]))
    g = {"diagonal": np.diag(np.diag(g)), "below it": np.tril(g, -1), "all": g}[part]
    h = clipped_quadratic(g[None], 1.0, np.array([max_kl])).numpy()[0]
    zeros, identity = np.zeros(size), np.eye(size)
    np.testing.assert_allclose(kl(zeros, h, zeros, identity), max_kl, rtol=1e-3)


def test_every_inducing_output_has_its_share_of_the_trust_region_once() -> None:
    """Also where several cliques have the output layer's: the whole divergence is the sum of all shares."""
    q = make_q("stripes-and-arrow", WIDTHS)
    mean, scale = (np.asarray(part) for part in q.dense())
    hidden = len(mean) // 5 * 3
    NaturalGradient(1.0, max_kl=1e-8).minimize(
        lambda: 1e3 * tf.reduce_sum(tf.square(q.dense()[1][:hidden])), q
    )
    changed = kl(mean, np.asarray(q.dense()[1]), mean, scale)
    np.testing.assert_allclose(changed, 1e-8 * len(mean), rtol=1e-2)


@pytest.mark.parametrize(
    "structure, num_gps", [("mean-field", 4), ("stripes-and-arrow", 3), ("fully-coupled", 5)]
)
def test_default_step_of_the_mean_corrects_a_sum_of_gps_once(structure: str, num_gps: int) -> None:
    """Of a loss that knows their sum alone, where twice the step would not converge."""
    q = make_q(structure, WIDTHS)
    size = len(q.dense()[0])
    M = size // 5
    one_of_each = np.zeros(size)
    one_of_each[: num_gps * M : M] = 1.0  # a value of each, hidden ones first

    def loss(mean: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        """KL from N(0, I), and a precise observation of the sum."""
        of_sum = tf.tensordot(one_of_each, mean, 1), tf.linalg.matvec(scale, one_of_each, True)
        squares = tf.square(of_sum[0] - 3.0) + tf.reduce_sum(tf.square(of_sum[1]))
        squares = 1e8 * squares + tf.reduce_sum(mean**2) + tf.reduce_sum(scale**2)
        return 0.5 * squares - tf.reduce_sum(tf.math.log(tf.linalg.diag_part(scale)))

    NaturalGradient(1.0, max_kl=None).minimize(lambda: loss(*q.dense()), q)
    np.testing.assert_allclose(one_of_each @ np.asarray(q.dense()[0]), 3.0, rtol=1e-5)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("gamma", [0.1, 1.0])
def test_no_step_leaves_the_trust_region(structure: str, gamma: float) -> None:
    """Whatever the gradient, a precision that is not positive definite included."""
    for seed in range(3):
        q = make_q(structure, WIDTHS, seed)
        mean, scale = (np.asarray(part) for part in q.dense())
        size = 10.0**seed * np.random.default_rng(seed).standard_normal(len(mean))
        NaturalGradient(gamma, max_kl=0.05).minimize(
            lambda size=size, q=q: tf.reduce_sum(size * covariance_and_mean(q)), q
        )
        new_mean, new_scale = (np.asarray(part) for part in q.dense())
        assert np.all(np.diag(new_scale) > 0.0)
        limit = 0.05 * len(mean)
        assert 1e-4 < kl(new_mean, scale, mean, scale) < (1.0 + 1e-9) * limit
        # Of the fallback to second order only.
        assert 1e-4 < kl(mean, new_scale, mean, scale) < 1.5 * limit


def covariance_and_mean(q: gd.posteriors.InducingPosterior) -> tf.Tensor:
    mean, scale = q.dense()
    return mean + tf.reduce_sum(scale**2, axis=1)


def test_goes_on_where_gpflows_fails() -> None:
    """Both on the same noisy loss of a deep model, at a step of 0.3."""

    def train(make_step: Callable) -> float:
        model = make_model("fully-coupled", hidden_dims=(2, 2), random=False)
        run = tf.function(make_step(model), autograph=False)
        for _ in range(60):
            run()
        fix_draws(model)
        return float(model.elbo((X, Y)))

    def gpflows(model: gd.models.DeepGP) -> Callable[[], None]:
        optimizer = gpflow.optimizers.NaturalGradient(0.6)
        pairs = model.inducing_posterior.variational_params
        return lambda: optimizer.minimize(lambda: model.training_loss((X, Y)), pairs)

    def ours(model: gd.models.DeepGP) -> Callable[[], None]:
        optimizer = NaturalGradient(0.6)
        return lambda: optimizer.minimize(lambda: model.training_loss((X, Y)), model)

    with pytest.raises(tf.errors.InvalidArgumentError):
        train(gpflows)
    model = make_model("fully-coupled", hidden_dims=(2, 2), random=False)
    fix_draws(model)
    assert train(ours) > float(model.elbo((X, Y))) + 20.0


def test_float32() -> None:
    results = []
    for float_type in (np.float64, np.float32):
        with gpflow.config.as_context(gpflow.config.Config(float=float_type)):
            q = make_q("stripes-and-arrow", WIDTHS)
            step(q, lambda mean, scale: tf.reduce_sum(mean**2) + tf.reduce_sum(scale**2), 0.3)
            assert q.dense()[1].dtype == float_type
            results.append(q.dense())
    for wide, narrow in zip(*results, strict=True):
        np.testing.assert_allclose(narrow, wide, rtol=1e-4, atol=1e-5)


def test_svgp_in_one_step() -> None:
    """GPflow's own model, compiled."""
    model = make_svgp()
    Xs, Ys = data()
    optimizer = NaturalGradient(1.0)
    tf.function(lambda: optimizer.minimize(lambda: model.training_loss((Xs, Ys)), model))()
    sgpr = gpflow.models.SGPR(
        (Xs, Ys), model.kernel, model.inducing_variable, likelihood=model.likelihood
    )
    model.num_data = len(Xs)
    before = model.elbo((Xs, Ys))
    optimizer = NaturalGradient(1.0)
    optimizer.minimize(lambda: model.training_loss((Xs, Ys)), [(model.q_mu, model.q_sqrt)])
    np.testing.assert_allclose(model.elbo((Xs, Ys)), sgpr.elbo(), rtol=1e-7)
    assert before < sgpr.elbo()


@pytest.mark.parametrize("family", ["mean-field", "stripes-and-arrow", "fully-coupled"])
def test_mixed_outputs_in_one_step_where_the_posterior_couples_their_gps(family: str) -> None:
    Xs, Ys = data(output_dim=3)
    parts = [gpflow.kernels.SquaredExponential(), gpflow.kernels.Matern52()]
    mixing = gpflow.kernels.LinearCoregionalization(parts, [[1.0, 0.5], [0.3, 2.0], [-1.0, 0.3]])
    layers = gd.layers.build_layers(Xs, (), 2, num_inducing=5, kernel_factory=lambda *_: mixing)
    model = make_model(family, layers=layers)
    bounds = []
    for _ in range(8):
        NaturalGradient(1.0).minimize(lambda: model.training_loss((Xs, Ys)), model)
        bounds.append(float(model.elbo((Xs, Ys))))
    is_optimum = np.isclose(bounds, bounds[-1], rtol=1e-8)
    assert is_optimum[-2]
    assert is_optimum[0] == (family != "mean-field")


def test_layers_of_global_inducing_points() -> None:
    """One layer's q is Gaussian, the other's is not: that is left alone."""
    model = make_model(
        "global-inducing",
        posterior=[
            lambda T, M: gd.posteriors.IndependentGaussian(T, M, initial_scale=0.5),
            gd.posteriors.PseudoObservations,
        ],
    )
    fix_draws(model)
    first, second = model.inducing_posteriors
    before = first.q_mu.numpy(), second.pseudo_outputs.numpy()
    optimizer = NaturalGradient(0.1)
    assert len(optimizer.variables_of(model)) == 2
    loss = [float(model.training_loss((X, Y)))]
    for _ in range(3):
        optimizer.minimize(lambda: model.training_loss((X, Y)), model)
        loss.append(float(model.training_loss((X, Y))))
    assert np.all(np.diff(loss) < 0.0)
    assert np.any(first.q_mu.numpy() != before[0])
    np.testing.assert_array_equal(second.pseudo_outputs, before[1])


def test_orthogonal_inducing_points() -> None:
    """A pattern within the blocks."""
    problem = make_problem((2, 1), np.eye(3, dtype=bool), num_inducing=[5, 4])
    q = gd.posteriors.Orthogonal(problem.gp_layers(), 2)
    q.assign_dense(problem.mean, problem.factor * q._dense_mask())
    loss = quadratic_loss(q)
    expected = reference_step(*values_and_gradients(q, loss), q._dense_mask(), 0.2, 0.2)
    step(q, loss, 0.2)
    assert_is(q, *expected)


@pytest.mark.parametrize("value", [3.0, -0.1, np.nan])
def test_schedules_leave_no_step_size_unchecked(value: float) -> None:
    pairs = [
        (gpflow.Parameter(np.zeros([2, 1])), gpflow.Parameter(np.eye(2)[None])),
    ]
    for name in ("gamma", "mean_gamma"):
        optimizer = NaturalGradient(**{name: lambda _: value})
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name}: expected a function"):
            optimizer.minimize(lambda: tf.reduce_sum(pairs[0][0] ** 2), pairs)


def test_schedules() -> None:
    """Any function of the number of steps taken; a schedule of Keras."""
    rates = [0.2, 0.1, 0.05]
    schedule = tf_keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], rates)
    qs = [make_q("stripes-and-arrow", (2, 1)) for _ in range(3)]
    loss = nonlinear_loss(qs[0])
    halving = lambda steps: 0.2 * 0.5 ** tf.cast(steps, tf.float64)  # noqa: E731
    for q, gamma in zip(qs, [schedule, halving], strict=False):
        optimizer = NaturalGradient(gamma)
        for _ in rates:
            optimizer.minimize(lambda q=q: loss(*q.dense()), q)
        assert int(optimizer.iterations) == 3
    for gamma in rates:
        NaturalGradient(gamma).minimize(lambda: loss(*qs[2].dense()), qs[2])
    for q in qs[:2]:
        for one, other in zip(q.dense(), qs[2].dense(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_patterns_that_are_not_transitive_are_refused() -> None:
    problem = make_problem((1, 1, 1), np.eye(3, dtype=bool))
    chain = np.eye(3, dtype=bool) | np.eye(3, k=-1, dtype=bool)
    q = gd.posteriors.BlockStructured(problem.gp_layers(), chain)
    with pytest.raises(ValueError, match=r"\(1, 0\) and \(2, 1\) but not \(2, 0\).*\[\(2, 0\)\]"):
        NaturalGradient().variables_of(q)
    closure = gd.posteriors.transitive_closure(chain)
    np.testing.assert_array_equal(closure, np.tri(3, dtype=bool))
    NaturalGradient().variables_of(gd.posteriors.BlockStructured(problem.gp_layers(), closure))


@pytest.mark.parametrize(
    "make,match",
    [
        (lambda: make_model("fitc-ep"), "got FITCEPDeepGP with TiedFactor"),
        (lambda: make_model("amortized-samples"), "got AmortizedDeepGP"),
        (lambda: make_svgp(q_diag=True), r"full covariance.*\[8, 1\]"),
        (lambda: [], "got list"),
        (
            lambda: [
                (
                    gpflow.Parameter(np.ones([2, 1])),
                    gpflow.Parameter(
                        np.ones([1, 2, 2]) * 2.0, transform=gpflow.utilities.positive()
                    ),
                )
            ],
            "transforms that only move numbers",
        ),
    ],
)
def test_what_it_cannot_update_is_refused(make: Callable, match: str) -> None:
    with pytest.raises(ValueError, match=f"var_list: expected.*{match}"):
        NaturalGradient().variables_of(make())


@pytest.mark.parametrize(
    "kwargs", [{"gamma": 0.0}, {"gamma": 1.5}, {"gamma": "0.1"}, {"mean_gamma": -1}, {"max_kl": 0}]
)
def test_bad_settings_are_refused(kwargs: dict) -> None:
    (name,) = kwargs
    with pytest.raises(ValueError, match=f"{name}: expected"):
        NaturalGradient(**kwargs)


def test_gradients_have_to_be_those_of_its_variables() -> None:
    q = make_q("mean-field", (1,))
    with pytest.raises(ValueError, match="gradients: expected 2.*got 1"):
        NaturalGradient().apply_gradients([tf.zeros([4, 1])], q)
