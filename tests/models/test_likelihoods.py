"""Deep GPs with GPflow's likelihoods: objective, predictions against direct sums, and training."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras
from gpflow.likelihoods import Likelihood, ScalarLikelihood, Softmax

import gpflow_deep as gd
from gpflow_deep.likelihoods import log_prob
from tests.models.contract import XNEW, X, assert_close, fix_draws, gradients, make_model

SIGNAL = np.sin(2.0 * X[:, :1])


@dataclass(frozen=True)
class Case:
    """A likelihood, how many functions it takes, targets [N, ...] and columns of its predictions."""

    make: Callable[[], Likelihood]
    num_latent_gps: int
    Y: np.ndarray
    num_outputs: int = 1


def _heteroskedastic() -> Likelihood:
    return gpflow.likelihoods.HeteroskedasticTFPConditional(
        distribution_class=tfp.distributions.Normal, scale_transform=tfp.bijectors.Softplus()
    )


def _multi_latent() -> Likelihood:
    """The same, by the general class."""
    return gpflow.likelihoods.MultiLatentTFPConditional(
        latent_dim=2,
        conditional_distribution=lambda F: tfp.distributions.Normal(
            F[..., :1], tf.math.softplus(F[..., 1:])
        ),
    )


class Laplace(gpflow.likelihoods.ScalarLikelihood):
    """A likelihood as users write them."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = gpflow.Parameter(scale, transform=gpflow.utilities.positive())

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return -tf.abs(Y - F) / self.scale - tf.math.log(2.0 * self.scale)

    def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.fill(tf.shape(F), tf.square(self.scale) * 2.0)


class KnownNoise(gpflow.likelihoods.ScalarLikelihood):
    """Each target comes with the variance of its noise, in a column of its own."""

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return gpflow.logdensities.gaussian(Y[..., :1], F, Y[..., 1:])

    def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.zeros_like(F)


def _gaussian_of_inputs() -> Likelihood:
    """Noise whose standard deviation is a trainable function of the model's inputs."""
    return gpflow.likelihoods.Gaussian(scale=gpflow.functions.Linear(A=[[0.1], [0.2]], b=2.0))


def _switched() -> Likelihood:
    """One noise or another, as the last column of the targets says."""
    return gpflow.likelihoods.SwitchedLikelihood(
        [gpflow.likelihoods.Gaussian(0.1), gpflow.likelihoods.StudentT()]
    )


RNG = np.random.default_rng(0)
CLASSES = np.digitize(SIGNAL, [-0.3, 0.3]).astype(float)  # 0, 1, 2
CASES = {
    "gaussian": Case(gpflow.likelihoods.Gaussian, 1, SIGNAL),
    "gaussian of two outputs": Case(gpflow.likelihoods.Gaussian, 2, np.c_[SIGNAL, -SIGNAL], 2),
    "gaussian of inputs": Case(_gaussian_of_inputs, 1, SIGNAL),
    "bernoulli": Case(gpflow.likelihoods.Bernoulli, 1, (SIGNAL > 0).astype(float)),
    "poisson": Case(gpflow.likelihoods.Poisson, 1, RNG.poisson(np.exp(SIGNAL)).astype(float)),
    "exponential": Case(gpflow.likelihoods.Exponential, 1, np.exp(SIGNAL)),
    "gamma": Case(gpflow.likelihoods.Gamma, 1, np.exp(SIGNAL)),
    "beta": Case(gpflow.likelihoods.Beta, 1, 0.5 + 0.4 * SIGNAL),
    "student-t": Case(gpflow.likelihoods.StudentT, 1, SIGNAL),
    "softmax": Case(lambda: gpflow.likelihoods.Softmax(3), 3, CLASSES, 3),
    "robust-max": Case(lambda: gpflow.likelihoods.MultiClass(3), 3, CLASSES, 3),
    "switched": Case(_switched, 1, np.c_[SIGNAL, np.arange(20) % 2], 2),
    "heteroskedastic": Case(_heteroskedastic, 2, SIGNAL),
    "several latent functions": Case(_multi_latent, 2, SIGNAL),
    "ordinal": Case(lambda: gpflow.likelihoods.Ordinal(np.array([-0.3, 0.3])), 1, CLASSES),
    "gaussian by draws": Case(lambda: gpflow.likelihoods.GaussianMC(0.2), 1, SIGNAL),
    "user's own": Case(lambda: Laplace(0.3), 1, SIGNAL),
    "user's own of two columns": Case(KnownNoise, 1, np.c_[SIGNAL, RNG.uniform(0.1, 1.0, 20)]),
    "missing outputs": Case(
        lambda: gd.likelihoods.MissingOutputs(gpflow.likelihoods.Gaussian(0.2)),
        2,
        np.where(np.arange(40).reshape(20, 2) % 3 == 1, np.nan, np.c_[SIGNAL, -SIGNAL]),
        2,
    ),
}
#: Those of which a class of GPflow's is the base and no likelihood itself.
BASES = {
    "Likelihood",
    "MonteCarloLikelihood",
    "MultiLatentLikelihood",
    "QuadratureLikelihood",
    "ScalarLikelihood",
}


def test_no_likelihood_of_gpflow_is_left_out() -> None:
    exported = {
        name
        for name, kind in vars(gpflow.likelihoods).items()
        if isinstance(kind, type) and issubclass(kind, Likelihood)
    }
    assert exported - BASES <= {type(case.make()).__name__ for case in CASES.values()}


OTHER_FAMILIES = ("mean-field", "global-inducing", "fitc-ep", "amortized-sites")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def _model(case: Case, **settings: object) -> gd.models.DeepGP:
    return make_model(
        "stripes-and-arrow",
        likelihood=case.make(),
        output_dim=case.num_latent_gps,
        **settings,
    )


def test_training_improves_the_bound(case: Case) -> None:
    model = _model(case)
    fix_draws(model)
    adam = tf_keras.optimizers.Adam(0.02)
    losses = []
    for _ in range(3):
        tf.random.set_seed(0)  # for likelihoods that sample
        loss, slopes = gradients(
            lambda: model.training_loss((X, case.Y)), model.trainable_variables
        )
        losses.append(float(loss))
        assert all(np.isfinite(slope).all() for slope in slopes)
        adam.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("family", ["fitc-ep", "amortized-sites"])
def test_other_families_take_them_too(family: str, case: Case) -> None:
    """
    Finite losses and gradients; densities that are those of draws of the functions. Of the families that
    train as the one above does, one layer below is enough.
    """
    _check_takes(family, case, (2,))


@pytest.mark.parametrize("name", CASES)
def test_models_of_one_layer_take_them_too(name: str) -> None:
    """Each likelihood with one family, each family with some: layers below change more than this."""
    family = OTHER_FAMILIES[list(CASES).index(name) % len(OTHER_FAMILIES)]
    _check_takes(family, CASES[name], ())


def _check_takes(family: str, case: Case, hidden_dims: tuple[int, ...]) -> None:
    likelihood = case.make()
    if isinstance(likelihood, gpflow.likelihoods.MonteCarloLikelihood):
        likelihood.num_monte_carlo_points = (
            2000  # for a hundred, as is its default, errors are large
        )
    model = make_model(family, hidden_dims, likelihood, case.num_latent_gps)
    tf.random.set_seed(0)
    loss, slopes = gradients(lambda: model.training_loss((X, case.Y)), model.trainable_variables)
    assert np.isfinite(loss)
    assert all(np.isfinite(slope).all() for slope in slopes)
    mean, variance = model.predict_y(XNEW)
    assert mean.shape == variance.shape == (6, case.num_outputs)
    assert np.isfinite(mean).all() and (variance.numpy() > 0).all()
    densities = model.predict_log_density((XNEW, case.Y[:6]))
    means, variances, log_weights = model.predict_f_mixture(XNEW)
    S = 2000
    noise = np.random.default_rng(0).standard_normal((S, *means.shape))
    f = tf.reshape(means + tf.sqrt(variances) * noise, [-1, case.num_latent_gps])
    targets = case.Y[:6].astype(int) if isinstance(likelihood, Softmax) else case.Y[:6]
    rows = [np.tile(x, (S * len(means), 1)) for x in (XNEW, targets)]
    log_p = tf.reshape(log_prob(likelihood, rows[0], f, rows[1]), [S, len(means), 6])
    p = np.exp(log_p + log_weights[:, None]).sum(1)  # [S, N]
    # GPflow's own quadrature in several dimensions, and draws.
    tolerance = 0.25 if not isinstance(likelihood, ScalarLikelihood) else 1e-4
    error = 5 * p.std(0) / S**0.5 + tolerance * p.mean(0)
    np.testing.assert_array_less(np.abs(np.exp(densities) - p.mean(0)), error)


def test_predictions(case: Case) -> None:
    model = _model(case)
    for predictor in (model, model.posterior()):
        tf.random.set_seed(0)
        mean, variance = predictor.predict_y(XNEW)
        assert mean.shape == variance.shape == (6, case.num_outputs)
        assert np.isfinite(mean).all()
        assert (variance.numpy() > 0).all()
        tf.random.set_seed(0)
        density = predictor.predict_log_density((XNEW, case.Y[:6]))
        assert density.shape == (6,)
        assert np.isfinite(density).all()


def _quadrature(
    model: gd.models.DeepGP, Y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, variance and density of new observations, by Gauss-Hermite sums over the mixture."""
    likelihood = model.likelihood
    means, variances, log_weights = (x.numpy() for x in model.predict_f_mixture(XNEW))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum() * np.exp(log_weights)[:, None]  # [S, nodes]
    f = means[..., 0, None] + np.sqrt(variances[..., 0, None]) * nodes  # [S, N, nodes]

    def of_functions(function: Callable[[tf.Tensor], tf.Tensor]) -> np.ndarray:
        columns = [function(tf.constant(f[s, n][:, None])) for s in range(8) for n in range(6)]
        return np.reshape(columns, [8, 6, -1])

    def average(values: np.ndarray) -> np.ndarray:
        return np.einsum("sk,snk->n", weights, values)

    # Polynomial and constant functions of the input would need it; none of these likelihoods has any.
    nowhere = tf.zeros([len(nodes), 0], tf.float64)
    means_y = of_functions(lambda F: likelihood.conditional_mean(nowhere, F))
    variances_y = of_functions(lambda F: likelihood.conditional_variance(nowhere, F))
    mean = average(means_y)
    density = np.zeros(6)
    for n in range(6):
        targets = tf.fill([len(nodes), 1], Y[n, 0])
        log_p = [likelihood.log_prob(nowhere, f[s, n][:, None], targets) for s in range(8)]
        density[n] = np.sum(weights * np.exp(log_p))
    return mean, average(variances_y + means_y**2) - mean**2, np.log(density)


@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "poisson", "student-t", "beta"])
def test_predictions_equal_direct_sums(name: str) -> None:
    """
    Not that of GPflow's likelihood at each component, but of the whole mixture: the average density,
    not the average log density, and the law of total variance.
    """
    case = CASES[name]
    model = _model(case)
    mean, variance, density = _quadrature(model, case.Y)
    rtol = 2e-3 if name not in ("gaussian", "bernoulli") else 1e-6  # GPflow's own has fewer nodes
    assert_close([x[:, 0] for x in model.predict_y(XNEW)], (mean, variance), rtol=rtol)
    assert_close(model.predict_log_density((XNEW, case.Y[:6])), density, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ["softmax", "robust-max"])
def test_probabilities_of_classes(name: str) -> None:
    case = CASES[name]
    model = _model(case, num_prediction_samples=4)
    tf.random.set_seed(0)
    probabilities = model.predict_y(XNEW)[0].numpy()
    tf.random.set_seed(0)
    densities = np.stack(
        [model.predict_log_density((XNEW, np.full((6, 1), k))) for k in range(3)], axis=1
    )
    # Softmax is Monte Carlo in GPflow, with 100 draws.
    tolerance = 0.05 if name == "softmax" else 1e-6
    assert_close(probabilities.sum(1), np.ones(6), atol=1e-5)
    assert_close(np.exp(densities), probabilities, rtol=0, atol=tolerance)
    # Against draws of the functions: with robust-max the largest one wins but for epsilon.
    draws = model.predict_f_samples(XNEW, num_samples=4000, full_cov=False).numpy()  # [S, N, 3]
    if name == "softmax":
        expected = tf.nn.softmax(draws).numpy().mean(0)
    else:
        wins = np.eye(3)[draws.argmax(-1)].mean(0)
        epsilon = model.likelihood.invlink.epsilon.numpy()
        expected = wins * (1 - epsilon) + (1 - wins) * epsilon / 2
    assert_close(probabilities, expected, rtol=0, atol=0.06)


def test_noise_as_a_function_of_the_inputs() -> None:
    """Its input is the model's, not the last layer's; the same for each component."""
    model = _model(CASES["gaussian of inputs"])
    f, y = model.predict_f(XNEW), model.predict_y(XNEW)
    assert_close(y[0], f[0])
    variance = np.square(model.likelihood.scale(XNEW))
    assert_close(y[1] - f[1], variance)
    mixture = model.predict_y_mixture(XNEW)
    components = tfp.distributions.Normal(mixture.means, tf.sqrt(mixture.variances))
    log_p = components.log_prob(SIGNAL[:6])[..., 0] + mixture.log_weights[:, None]
    density = model.predict_log_density((XNEW, SIGNAL[:6]))
    assert_close(density, tf.reduce_logsumexp(log_p, axis=0))


class _Listed(gpflow.functions.Function):
    """Known values, one for each row, in the order of the rows."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self.values = values

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return tf.constant(self.values)


@pytest.mark.parametrize(
    "family, likelihood",
    [
        ("mean-field", gpflow.likelihoods.Gaussian),
        ("mean-field", gpflow.likelihoods.StudentT),
        ("global-inducing", gpflow.likelihoods.Gaussian),
        ("amortized-sites", gpflow.likelihoods.Gaussian),
    ],
)
def test_a_known_scale_for_each_row(family: str, likelihood: type[ScalarLikelihood]) -> None:
    """As the same function of the inputs, in training and in predictions at the rows of training."""
    function = gpflow.functions.Linear(A=[[0.1], [0.2]], b=0.7)
    gpflow.set_trainable(function, False)
    objectives, predictions = [], []
    for scale in (function, _Listed(function(X).numpy())):
        model = make_model(family, likelihood=likelihood(scale=scale))
        loss = model.training_loss_closure((X, SIGNAL), compile=False, seed=0)
        objectives.append(gradients(loss, model.trainable_variables))
        y, mixture = model.predict_y(X), model.predict_y_mixture(X)
        predictions.append([y, mixture, model.predict_log_density((X, SIGNAL))])
    assert_close(*objectives)
    assert_close(*predictions)


def test_known_scales_of_more_rows_than_a_part_of_a_prediction() -> None:
    rng = np.random.default_rng(0)
    inputs, scales = rng.normal(size=[90, 2]), rng.uniform(0.1, 1.0, size=[90, 1])
    likelihood = gpflow.likelihoods.Gaussian(scale=_Listed(scales))
    model = make_model("mean-field", likelihood=likelihood, num_prediction_samples=200)
    f, y = model.predict_f(inputs), model.predict_y(inputs)
    assert_close(y[1] - f[1], np.square(scales))
    posterior = model.posterior()
    for _ in range(2):
        assert_close(posterior.predict_y(inputs), y)
    assert model.predict_log_density((inputs, y[0])).shape == (90,)


def test_a_known_scale_for_each_row_in_one_layer_is_that_of_an_svgp() -> None:
    likelihood = gpflow.likelihoods.Gaussian(scale=_Listed(np.exp(SIGNAL)))
    kernel = gpflow.kernels.RBF()
    model = gd.models.DeepGP([gd.layers.GPLayer(kernel, X[::3].copy(), 1)], likelihood)
    svgp = gpflow.models.SVGP(kernel, likelihood, X[::3].copy())
    assert_close(model.elbo((X, SIGNAL)), svgp.elbo((X, SIGNAL)))
    assert_close(model.predict_y(X), svgp.predict_y(X))
    assert_close(model.predict_log_density((X, SIGNAL)), svgp.predict_log_density((X, SIGNAL)))


def test_columns_beside_the_targets_for_a_users_density() -> None:
    Y = np.c_[SIGNAL, np.exp(SIGNAL)]
    kernel = gpflow.kernels.RBF()
    model = gd.models.DeepGP([gd.layers.GPLayer(kernel, X[::3].copy(), 1)], KnownNoise())
    svgp = gpflow.models.SVGP(kernel, KnownNoise(), X[::3].copy())
    np.testing.assert_allclose(model.elbo((X, Y)), svgp.elbo((X, Y)), rtol=1e-4)
    # Their quadrature has errors of which ours has a hundredth.
    variances = np.exp(SIGNAL)
    likelihood = gpflow.likelihoods.Gaussian(scale=_Listed(np.sqrt(variances)))
    exact = gpflow.models.SVGP(kernel, likelihood, X[::3].copy())
    assert_close(model.elbo((X, Y)), exact.elbo((X, SIGNAL)))
    assert_close(model.predict_log_density((X, Y)), exact.predict_log_density((X, SIGNAL)))
    of_two = gd.models.DeepGP(
        [gd.layers.GPLayer(gpflow.kernels.RBF(), X[::3].copy(), 2)], KnownNoise()
    )
    with pytest.raises(ValueError, match=r"\[N, 2\], or more columns, for KnownNoise of 2 latent"):
        of_two.elbo((X, SIGNAL))
    named = KnownNoise()
    named.observation_dim = 2
    model = gd.models.DeepGP([gd.layers.GPLayer(gpflow.kernels.RBF(), X[::3].copy(), 1)], named)
    with pytest.raises(ValueError, match=r"expected \[N, 2\] for KnownNoise of 1 latent"):
        model.elbo((X, SIGNAL))


_LINKS = {
    "gpflow's": gpflow.likelihoods.Bernoulli(),
    "probit": gpflow.likelihoods.Bernoulli(invlink=gd.likelihoods.probit),
    "sigmoid": gpflow.likelihoods.Bernoulli(invlink=tf.math.sigmoid),
}


@pytest.mark.parametrize("link", _LINKS)
@pytest.mark.parametrize("family", ["mean-field", "fitc-ep"])
def test_labels_of_minus_one_are_those_of_zero(family: str, link: str) -> None:
    zeros = (SIGNAL > 0).astype(float)
    model = make_model(family, likelihood=_LINKS[link])
    results = []
    for labels in (zeros, 2.0 * zeros - 1.0):
        loss = model.training_loss_closure((X, labels), compile=False, seed=0)
        densities = model.predict_log_density((X, labels))
        results.append([gradients(loss, model.trainable_variables), densities])
    for one, other in zip(*map(tf.nest.flatten, results)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("link", ["gpflow's", "sigmoid"])
def test_labels_of_minus_one_in_one_layer_are_an_svgp_s(link: str) -> None:
    """With nodes that both take."""
    nodes = gpflow.quadrature.NDiagGHQuadrature(1, 30)
    likelihood = gpflow.likelihoods.Bernoulli(_LINKS[link].invlink, quadrature=nodes)
    kernel, Z = gpflow.kernels.RBF(), X[::4].copy()
    labels = np.where(SIGNAL > 0, 1.0, -1.0)
    model = gd.models.DeepGP([gd.layers.GPLayer(kernel, Z, 1)], likelihood)
    svgp = gpflow.models.SVGP(kernel, likelihood, Z)
    for name in ("elbo", "predict_log_density"):
        actual, expected = (getattr(m, name)((X, labels)) for m in (model, svgp))
        assert_close(actual, expected)
    slopes = [
        gradients(lambda m=m: m.elbo((X, labels)), [m.q_mu.unconstrained_variable])[1]
        for m in (model, svgp)
    ]
    assert_close(*slopes)


def test_expectation_propagation_takes_labels_of_minus_one() -> None:
    zeros, results = (SIGNAL > 0).astype(float), []
    for labels in (zeros, 2.0 * zeros - 1.0):
        model = make_model("fitc-ep", (), likelihood=_LINKS["probit"], random=False)
        gd.optimizers.StochasticEP(model).step((X, labels))
        results.append(model.predict_f(XNEW))
    assert_close(*results)


def test_bound_is_below_the_log_evidence() -> None:
    """For a likelihood that is not conjugate: against draws of the functions at few points."""
    case = CASES["bernoulli"]
    few = (X[:3], case.Y[:3])
    model = _model(case, num_data=3, num_samples=500)
    bound = float(model.elbo(few))
    # The prior of the whole model, by its definition: q(v) = p(v).
    prior = _model(case, num_data=3)
    size = len(prior.inducing_posterior.dense()[0])
    gpflow.utilities.multiple_assign(prior, gpflow.utilities.read_values(model))
    prior.inducing_posterior.assign_dense(np.zeros(size), np.eye(size))
    tf.random.set_seed(0)
    draws = prior.predict_f_samples(few[0], num_samples=4000, full_cov=True)
    p = prior.likelihood.invlink(draws)
    log_p = tf.reduce_sum(tf.math.log(tf.where(few[1] == 1, p, 1 - p)), axis=[1, 2])
    evidence = float(tf.reduce_logsumexp(log_p) - np.log(4000))
    assert bound < evidence


@pytest.mark.parametrize(
    "link", [gd.likelihoods.probit, tf.math.sigmoid], ids=["probit", "sigmoid"]
)
def test_links_far_from_the_data(link: Callable[[tf.Tensor], tf.Tensor]) -> None:
    """Nodes of a quadrature reach where these probabilities are rounded to zero."""
    Y = (SIGNAL > 0).astype(float)
    likelihood = gpflow.likelihoods.Bernoulli(invlink=link)
    wide = make_model("mean-field", likelihood=likelihood)
    wide.layers[-1].kernel.variance.assign(50.0)
    wide.inducing_posterior.q_mu[-1].assign(4.0 * np.ones((5, 1)))
    for model in (wide, make_model("fitc-ep", likelihood=likelihood, alpha=0.5)):
        loss, slopes = gradients(lambda m=model: m.training_loss((X, Y)), model.trainable_variables)
        assert np.isfinite(loss)
        assert all(np.isfinite(slope).all() for slope in slopes)


@pytest.mark.parametrize("family", ["one layer", "sites"])
def test_scipy_is_told_of_new_nodes(family: str) -> None:
    """Of models without other draws than those of their likelihood."""
    layers = gd.layers.build_layers(X, () if family == "one layer" else (2,), 3, num_inducing=4)
    labels = np.arange(len(X))[:, None] % 3
    if family == "one layer":
        model = gd.models.DeepGP(layers, Softmax(3))
    else:
        model = gd.models.DeepSigmaPointProcess(layers, Softmax(3))
    optimizer, options = gpflow.optimizers.Scipy(), dict(maxiter=1)
    with pytest.warns(UserWarning, match="with new draws each time") as record:
        loss = model.training_loss_closure((X, labels), compile=False)
        optimizer.minimize(loss, model.trainable_variables, options=options, compile=False)
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = model.training_loss_closure((X, labels), compile=False, seed=0)
        optimizer.minimize(loss, model.trainable_variables, options=options, compile=False)


def test_a_likelihood_assigned_later_is_checked_like_the_first() -> None:
    model = make_model("mean-field", num_data=len(X))
    before = model.likelihood
    with pytest.raises(ValueError, match="likelihood: Softmax takes 3 latent functions, the last"):
        model.likelihood = Softmax(3)
    with pytest.raises(TypeError, match="likelihood: expected a GPflow likelihood, got 'gaussian'"):
        model.likelihood = "gaussian"
    assert model.likelihood is before
    model.likelihood = student = gpflow.likelihoods.StudentT()
    assert model.likelihood is student
    assert gpflow.utilities.parameter_dict(model)[".likelihood.scale"] is student.scale
    assert np.isfinite(model.training_loss((X, SIGNAL)))
    three = gd.models.DeepGP(gd.layers.build_layers(X, (), 3, 5), gpflow.likelihoods.Gaussian())
    three.likelihood = Softmax(3)
    assert np.isfinite(three.training_loss((X, np.arange(len(X))[:, None] % 3)))
