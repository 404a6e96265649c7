from __future__ import annotations

from dataclasses import replace
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpflow_deep import metrics, presets
from gpflow_deep.estimators import (
    DeepGPClassifier,
    DeepGPRegressor,
    base,
    calibration,
    evidence,
    load,
    members,
    selection,
)
from gpflow_deep.estimators.evidence import fit_exact
from gpflow_deep.estimators.fitting import fit_family
from gpflow_deep.estimators.rows import distinct_rows
from gpflow_deep.estimators.starting import start_as_sparse_gp, start_from_labels
from gpflow_deep.presets import Settings, get, recommended
from gpflow_deep.presets.parts import pseudo_targets
from gpflow_deep.training import TrainingError

_QUICK: dict[str, Any] = dict(steps=5, num_inducing=8, random_state=0)


def _data(num_rows: int = 60, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=num_rows)


@pytest.fixture(scope="module")
def regressor() -> DeepGPRegressor:
    """For tests that only read it: two outputs, two layers."""
    X, y = _data()
    return DeepGPRegressor("mean-field", **_QUICK).fit(X, np.stack([y, 100.0 + 10.0 * y], axis=1))


def test_a_column_of_noise_costs_a_clean_one_nothing() -> None:
    """Each column of targets of a deep model has its own noise variance."""
    X, signal = _data(200)
    noise = np.random.default_rng(7).normal(size=200)
    fitted = DeepGPRegressor("mean-field", **_QUICK | {"steps": 300}).fit(
        X, np.stack([signal, noise], axis=1)
    )
    alone = DeepGPRegressor("mean-field", **_QUICK | {"steps": 300}).fit(X, signal)
    test = _data(500, seed=8)[0]
    truth = np.sin(2.0 * test[:, 0])
    mean, sd = fitted.predict(test, return_std=True)
    error = np.sqrt(np.mean(np.square(mean[:, 0] - truth)))
    assert error < 1.5 * np.sqrt(np.mean(np.square(alone.predict(test) - truth)))
    assert np.median(sd[:, 0]) < 0.25 and np.median(sd[:, 1]) > 0.8


def test_units_change_nothing_but_the_units() -> None:
    X, y = _data()
    first = DeepGPRegressor("mean-field", **_QUICK).fit(X, y)
    X2, y2 = X * [10.0, 0.01] + [3.0, -7.0], 1000.0 * y + 50.0
    second = DeepGPRegressor("mean-field", **_QUICK).fit(X2, y2)
    mean, sd = first.predict(X, return_std=True)
    mean2, sd2 = second.predict(X2, return_std=True)
    np.testing.assert_allclose(mean2, 1000.0 * mean + 50.0, rtol=1e-5)
    np.testing.assert_allclose(sd2, 1000.0 * sd, rtol=1e-5)
    np.testing.assert_allclose(
        second.log_density(X2, y2), first.log_density(X, y) - np.log(1000.0), rtol=1e-4
    )


def test_predictions_agree_with_each_other(regressor: DeepGPRegressor) -> None:
    X, y = _data(9, seed=6)
    Y = np.stack([y, 100.0 + 10.0 * y], axis=1)
    mean, sd = regressor.predict(X, return_std=True)
    _, covariance = regressor.predict(X, return_cov=True)
    assert mean.shape == sd.shape == (9, 2) and covariance.shape == (9, 9, 2)
    np.testing.assert_allclose(np.einsum("nnp->np", covariance), np.square(sd))
    assert np.linalg.eigvalsh(np.moveaxis(covariance, -1, 0)).min() > 0.0
    np.testing.assert_allclose(
        regressor.log_density(X, Y),
        metrics.log_density(Y, *regressor.predict_mixture(X)),
        rtol=1e-5,
    )
    with pytest.raises(ValueError, match=r"^y: expected targets of shape \(9, 2\), got \(18,\)"):
        regressor.log_density(X, Y.ravel())
    with pytest.raises(ValueError, match="^y: expected finite values, got 2 NaN"):
        regressor.log_density(X, np.where(np.arange(9)[:, None] == 3, np.nan, Y))
    quantiles = regressor.predict_quantiles(X, (0.1, 0.5, 0.9))
    assert quantiles.shape == (9, 3, 2) and (np.diff(quantiles, axis=1) > 0.0).all()
    with pytest.raises(ValueError, match="^quantiles: expected a list of numbers in"):
        regressor.predict_quantiles(X, (10, 50, 90))
    with pytest.raises(ValueError, match="^quantiles: expected a list of numbers in.* got 0.5"):
        regressor.predict_summary(X, 0.5)  # type: ignore[arg-type]
    draws = regressor.sample_y(X, 4000, random_state=1)
    assert draws.shape == (9, 2, 4000)
    np.testing.assert_array_equal(draws, regressor.sample_y(X, 4000, random_state=1))
    np.testing.assert_allclose(draws.mean(axis=2), mean, atol=0.1 * sd.max())
    np.testing.assert_allclose(draws.std(axis=2), sd, rtol=0.1)
    np.testing.assert_allclose(
        np.quantile(draws, (0.1, 0.5, 0.9), axis=2),
        np.moveaxis(quantiles, 1, 0),
        atol=0.15 * sd.max(),
    )


@pytest.mark.parametrize("model", ["gp", "svgp", "global-inducing", "ar2p", "dspp"])
def test_a_row_of_weight_two_is_the_row_twice(model: str) -> None:
    X, y = _data(40)
    times = np.random.default_rng(0).integers(0, 4, 40)
    rows = np.repeat(np.arange(40), times)
    weighted = DeepGPRegressor(model, kernel="rbf", **_QUICK).fit(X, y, sample_weight=times)
    repeated = DeepGPRegressor(model, kernel="rbf", **_QUICK).fit(X[rows], y[rows])
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))


def test_members_are_not_judged_by_rows_that_they_know() -> None:
    """Of rows of weight two: one copy would train, the other judge, and what interpolates would win."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, size=(450, 3))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=450)
    weighted = DeepGPRegressor(steps=100, random_state=0)
    weighted.fit(X[:220], y[:220], sample_weight=np.full(220, 2.0))
    best = max(member["log_density"] for member in weighted.report_)
    own = weighted.log_density(X[220:], y[220:]).mean() + np.log(y[:220].std())
    assert abs(best - own) < 0.3
    assert own > -0.8


def test_weights_that_are_no_counts() -> None:
    """The exact GP's evidence of a row of weight w: a w-th of the noise, and a constant."""
    X, y = _data(40)
    weights = np.random.default_rng(0).uniform(0.1, 3.0, 40)
    exact = DeepGPRegressor("gp", kernel="rbf").fit(X, y, sample_weight=weights)
    K = exact.model_.kernel(exact.model_.inputs).numpy()
    noise = exact.model_.likelihood.variance.numpy()
    targets = exact.model_.targets.numpy()[:, 0]
    total = K + np.diag(noise / exact.model_.weights.numpy())
    own = -0.5 * (
        targets @ np.linalg.solve(total, targets) + np.linalg.slogdet(2 * np.pi * total)[1]
    )
    w = exact.model_.weights.numpy()
    constant = 0.5 * np.sum((1 - w) * np.log(2 * np.pi * noise) - np.log(w))
    np.testing.assert_allclose(exact.model_.maximum_log_likelihood_objective(), own + constant)
    with pytest.raises(ValueError, match="whole numbers for 'dspp'"):
        DeepGPRegressor("dspp", **_QUICK).fit(X, y, sample_weight=weights)


def test_one_wild_cell_does_not_ruin_the_fit_unsaid() -> None:
    X, y = _data(80)
    options: dict[str, Any] = dict(model="gp", kernel="rbf", random_state=0)
    expected = DeepGPRegressor(**options).fit(X, y).score(*_data(50, seed=9))
    X[3, 1] = 1e12
    frame = pd.DataFrame(X, columns=["first", "second"])
    with pytest.warns(UserWarning, match="column 'second': 1 of 80 values"):
        fitted = DeepGPRegressor(**options).fit(frame, y)
    test = pd.DataFrame(_data(50, seed=9)[0], columns=["first", "second"])
    assert fitted.score(test, _data(50, seed=9)[1]) > expected - 0.05
    y[5] = -1e12
    with pytest.warns(UserWarning, match="y, column 0: 1 of 80 values"):
        DeepGPRegressor("constant").fit(X[:, :1], y)


@pytest.mark.filterwarnings("ignore:.*too many for slips")
@pytest.mark.parametrize("switched", ["X", "y"])
def test_what_is_off_four_times_of_five_is_learned_where_it_is_on(switched: str) -> None:
    rng = np.random.default_rng(0)

    def data(number: int) -> tuple[np.ndarray, np.ndarray]:
        X, on = rng.uniform(-1.0, 1.0, size=(number, 2)), rng.random(number) < 0.2
        if switched == "X":
            X[:, 0] = np.where(on, 3.0 + 2.0 * X[:, 0], 1e-3 * X[:, 0])
            return X, 2.0 * on * X[:, 0] + 0.1 * rng.normal(size=number)
        X[:, 0] = np.where(on, 0.8, -0.2) + 0.2 * X[:, 0]
        return X, on * (3.0 + X[:, 1]) + 2e-3 * rng.normal(size=number)

    fitted = DeepGPRegressor("gp", kernel="rbf", random_state=0).fit(*data(150))
    assert fitted.score(*data(500)) > 0.95


def test_rows_of_no_weight_are_no_rows() -> None:
    """Masked ones, of another sensor and time."""
    X, y = _data(40)
    masked = np.concatenate([X, 1000.0 + 0.01 * np.random.default_rng(0).normal(size=(200, 2))])
    weights = np.repeat([1.0, 0.0], [40, 200])
    targets = np.concatenate([y, np.full(200, -999.0)])
    expected = DeepGPRegressor("gp", kernel="rbf", random_state=0).fit(X, y)
    fitted = DeepGPRegressor("gp", kernel="rbf", random_state=0)
    fitted.fit(masked, targets, sample_weight=weights)
    np.testing.assert_array_equal(fitted.predict(X), expected.predict(X))
    with pytest.raises(ValueError, match="sample_weight: expected at least two rows .*, got one"):
        fitted.fit(X, y, sample_weight=np.arange(40) == 3)


def test_targets_that_do_not_vary_are_told() -> None:
    X, y = _data(20)
    with pytest.warns(UserWarning, match="y, column 1: expected values that vary, got 3 alone"):
        DeepGPRegressor("constant").fit(X, np.stack([y, np.full(20, 3.0)], axis=1))


def test_who_asks_for_a_constant_gets_one() -> None:
    """No forest of the inputs, which describes errors of the default's."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    y = np.where(X[:, 0] > 0.5, 1.0, -1.0) + 0.1 * rng.normal(size=300)
    model = DeepGPRegressor("constant", random_state=0).fit(X, y)
    mean = model.predict(X)
    assert np.ptp(mean) < 1e-6 and abs(mean[0] - y.mean()) < 0.05
    with pytest.raises(ValueError, match=r"^y: expected targets of shape \(4,\), got \(3,\)"):
        model.log_density(X[:4], y[:3])
    with pytest.raises(TypeError, match="^y: expected an array, got a sparse matrix"):
        model.fit(X, csr_matrix(y[:, None]))


def test_auto_is_not_much_worse_than_its_best_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "candidates", lambda *_, **__: (("svgp",), "mean-field"))
    X, y = _data(250)
    X_test, y_test = _data(300, seed=8)
    options: dict[str, Any] = dict(steps=60, num_inducing=20, random_state=0, warp=False)
    auto = DeepGPRegressor("auto", **options).fit(X, y)
    assert {tried["name"] for tried in auto.report_} == {"svgp", "mean-field"}
    np.testing.assert_allclose(auto.weights_.sum(), 1.0)
    mixed = auto.log_density(X_test, y_test).mean()
    inputs, targets = auto._inputs(X_test), auto.scaling_.targets(y_test[:, None])
    best = max(member.log_density(inputs, targets).mean() for member in auto.members_)
    assert mixed > best - np.log(auto.scaling_.Y_scale[0]) - 0.05
    np.testing.assert_allclose(
        metrics.log_density(y_test[:, None], *auto.predict_mixture(X_test)).mean(), mixed, rtol=1e-6
    )


def test_a_family_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "candidates", lambda *_, **__: (("svgp",), "mean-field"))
    real = members.fit_family

    def failing(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "svgp":
            raise TrainingError("failed")
        return real(name, *arguments, **options)

    monkeypatch.setattr(members, "fit_family", failing)
    fitted = DeepGPRegressor("auto", warp=False, **_QUICK).fit(*_data(250))
    assert [member.name for member in fitted.members_] == ["mean-field"]
    assert any(tried["error"] == "failed" for tried in fitted.report_)
    monkeypatch.setattr(members, "fit_family", lambda *_, **__: failing("svgp"))
    with pytest.raises(TrainingError, match="All families failed"):
        DeepGPRegressor("auto", warp=False, **_QUICK).fit(*_data(250))


def test_tools_of_scikit_learn() -> None:
    X, y = _data(30)
    frame = pd.DataFrame(X, columns=["first", "second"])
    search = GridSearchCV(
        make_pipeline(
            StandardScaler().set_output(transform="pandas"), DeepGPRegressor("svgp", **_QUICK)
        ),
        {"deepgpregressor__kernel": ["rbf", "matern52"]},
        cv=2,
    ).fit(frame, y)
    best = search.best_estimator_[-1]
    assert list(best.feature_names_in_) == ["first", "second"]
    scores = cross_val_score(clone(best), X, y > 0, cv=2)
    assert scores.shape == (2,)


def test_warm_start_goes_on_from_the_present_parameters() -> None:
    X, y = _data()
    fitted = DeepGPRegressor("svgp", 1, warm_start=True, **_QUICK | {"steps": 100}).fit(X, y)
    expected = fitted.predict(X)
    fitted.set_params(steps=1, settings={"learning_rate": 1e-8}).fit(X, y)
    np.testing.assert_allclose(fitted.predict(X), expected, rtol=1e-4)


def test_auto_keeps_to_its_time() -> None:
    """But for the compilation of each family's first step."""
    fitted = DeepGPRegressor(time_limit=2.0, num_inducing=8, random_state=0).fit(*_data(250))
    families = {"constant", "gp", "rough-gp", "linear", "dspp"}
    assert {tried["name"] for tried in fitted.report_} == families
    assert all(tried["log_density"] is not None for tried in fitted.report_)
    steps = [m.report["steps"] for m in fitted.members_ if "steps" in m.report]
    assert all(number < 1000 for number in steps)
    np.testing.assert_allclose(fitted.weights_.sum(), 1.0)


def test_whole_numbers_are_not_named_one_by_one() -> None:
    """By a predictive objective: its noise is not less than that of rounding."""
    X, y = _data(250)
    y = np.round(2.0 * y)
    for name, expected in (("dspp", 1.0 / 12.0 / y.var()), ("svgp", 1e-5)):
        (member,) = DeepGPRegressor(name, **_QUICK | {"steps": 2}).fit(X, y).members_
        np.testing.assert_allclose(member.settings.noise_floor, expected, rtol=0.1)
        assert member.model.likelihood.variance.numpy() > member.settings.noise_floor


def test_auto_with_weights_that_are_no_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A predictive objective cannot take them."""
    monkeypatch.setattr(selection, "_SHALLOW", {"gaussian": ("constant", "linear")})
    fitted = DeepGPRegressor(warp=False, **_QUICK)
    fitted.fit(*_data(250), sample_weight=np.full(250, 0.5))
    assert {tried["name"] for tried in fitted.report_} == {"constant", "linear", "mean-field"}


def test_few_rows_are_cross_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "candidates", lambda *_, **__: (("svgp",), "solve-gp"))
    monkeypatch.setattr(selection, "FOLDS", 2)
    X, y = _data(40)
    fitted = DeepGPRegressor("auto", **_QUICK | {"steps": 4}).fit(X, y)
    assert [tried["name"] for tried in fitted.report_] == ["svgp", "solve-gp"]
    np.testing.assert_allclose(fitted.weights_.sum(), 1.0)
    assert all(member.report["rows"] == 40 for member in fitted.members_)  # all, in the end
    labels = np.where(y > 0, "up", "down")
    classes = DeepGPClassifier("auto", kernel="rbf", **_QUICK).fit(X, labels)
    assert [tried["name"] for tried in classes.report_] == ["svgp"]


@pytest.mark.parametrize(
    ("num_rows", "noise", "expected"),
    [(1100, 0.3, "float32"), (1100, 1e-4, "float64"), (300, 0.3, "float64")],
)
def test_exact_gps_predict_in_float32_where_noise_hides_it(
    num_rows: int, noise: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "_OTHER_STARTS", ())
    monkeypatch.setattr(calibration, "_FEWEST_ROWS", 10**9)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, 2))
    y = np.sin(2.0 * X[:, 0]) + noise * rng.normal(size=num_rows)
    options = dict(time_limit=5.0, validation_fraction=0.0, kernel="rbf", random_state=0)
    fitted = DeepGPRegressor("gp", **options).fit(X, y)
    (member,) = fitted.members_
    assert member.settings.compute_dtype == member.model.compute_dtype == expected
    _, sd = fitted.predict(X[:200], return_std=True)
    member.model.compute_dtype, member._posterior = "float64", None
    _, expected_sd = fitted.predict(X[:200], return_std=True)
    np.testing.assert_allclose(sd, expected_sd, rtol=5e-4)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_models_of_classes_start_from_an_exact_gp_of_the_labels(num_classes: int) -> None:
    """Functions are a multiple of the labels' sparse GP, the multiple that the bound likes best."""
    X, y = _data(120)
    Y = np.digitize(y, np.quantile(y, np.arange(1, num_classes) / num_classes))[:, None]
    rows = distinct_rows(X, Y.astype(float), None)
    likelihood = "bernoulli" if num_classes == 2 else "softmax"
    settings = recommended("svgp", len(X), X.shape[1], likelihood=likelihood)
    settings = replace(settings, num_inducing=30, compute_dtype="own")
    model = get("svgp").build(rows.X, rows.Y, settings, 0)
    start_from_labels(model, rows, settings, seed=0, seconds=None)
    labels = pseudo_targets(rows.Y, model.num_latent_gps, settings)
    labelled = rows._replace(Y=labels - labels.mean(axis=0))
    constant = model.layers[0].mean_function(rows.X)  # the classes' frequencies
    gaussian = replace(settings, likelihood="gaussian")
    order = np.random.default_rng(0).permutation(len(rows.X))
    exact, *_ = fit_exact("gp", labelled.take(order), gaussian, seed=0, inputs_may_go=False)
    sparse = gpflow.models.SGPR(
        (labelled.X, labelled.Y),
        exact.kernel,
        model.layers[0].inducing_variable,
        noise_variance=exact.likelihood.variance.numpy(),
    )
    f, expected = model.predict_f(rows.X)[0], sparse.predict_f(rows.X)[0]
    variance = model.layers[0].kernel.variance
    scale = np.sqrt(variance.numpy() / exact.kernel.variance.numpy())
    np.testing.assert_allclose(f - constant, scale * expected, atol=0.01)
    found = np.argmax(f, axis=1) if num_classes > 2 else f[:, 0] > 0
    assert np.mean(found == rows.Y[:, 0]) > 0.9
    # One that is there already, of labels in other units, leads to a multiple too.
    for parameter in (exact.kernel.variance, exact.likelihood.variance):
        parameter.assign(0.25 * parameter)
    start_from_labels(model, rows, settings, seed=0, seconds=None, exact=exact)
    scale = np.sqrt(variance.numpy() / exact.kernel.variance.numpy())
    f = model.predict_f(rows.X)[0]
    np.testing.assert_allclose(f - constant, scale * expected, atol=0.01)
    # A hidden layer that does not keep the inputs has no use for it.
    narrow = get("mean-field").build(
        rows.X, rows.Y, replace(settings, num_layers=2, hidden_dim=1), 0
    )
    before = gpflow.utilities.read_values(narrow)
    start_from_labels(narrow, rows, settings, seed=0, seconds=None)
    for path, value in gpflow.utilities.read_values(narrow).items():
        np.testing.assert_array_equal(value, before[path])
    if num_classes == 2:  # of more the bound is drawn
        bound = float(model.elbo((rows.X, rows.Y)))
        for other in {1.0, 2.0, 4.0, 8.0} - {float(np.round(scale))}:
            variance.assign(other**2 * exact.kernel.variance)
            assert float(model.elbo((rows.X, rows.Y))) < bound


@pytest.mark.parametrize("name", ["lindinger2020-mean-field", "svgp"])
def test_models_of_classes_begin_near_their_frequencies(name: str) -> None:
    """Whether their mean function has them, or the function that they start with has to."""
    X = np.random.default_rng(0).normal(size=(150, 2))
    options: dict[str, Any] = dict(num_layers=1, steps=1, num_inducing=20, random_state=0)
    fitted = DeepGPClassifier(name, **options).fit(X, X[:, 0] > 1.0)
    assert fitted.predict_proba(X)[:, 1].mean() < 0.3


@pytest.mark.parametrize("name", ["solve-gp", "lindinger2020-mean-field"])
def test_models_that_cannot_start_as_a_sparse_gp_are_trained_all_the_same(name: str) -> None:
    """Of covariances that orthogonal inducing points have not, or with kernels that are sums."""
    X = np.random.default_rng(0).normal(size=(150, 2))
    as_wide = {"hidden_dim": 2}  # as the inputs
    options: dict[str, Any] = dict(steps=2, num_inducing=10, random_state=0, settings=as_wide)
    fitted = DeepGPClassifier(name, **options).fit(X, X[:, 0] > 0.0)
    assert np.isfinite(fitted.predict_proba(X)).all()


def test_deep_models_start_as_the_sparse_approximation_of_an_exact_gp() -> None:
    """Of one layer: the bound is that of GPflow's SGPR. Of two: predictions are near the exact GP's."""
    X, y = _data(200)
    exact = DeepGPRegressor("gp", validation_fraction=0.0, kernel="rbf", random_state=0).fit(X, y)
    (start,) = exact.members_
    rows = exact._scaled(distinct_rows(X, y[:, None], None))
    settings = Settings(num_layers=1, num_inducing=20, kernel="rbf")
    for weights in (np.ones(200), np.arange(200) % 3 + 1.0):
        weighted = rows._replace(weights=weights)
        model = presets.build("svgp", rows.X, rows.Y, settings)
        start_as_sparse_gp(model, start.model, weighted)
        again = weighted.repeated("svgp")
        sparse = gpflow.models.SGPR(
            (again.X, again.Y),
            start.model.kernel,
            model.layers[0].inducing_variable,
            noise_variance=start.model.likelihood.variance.numpy(),
        )
        model.num_data = len(again.X)
        np.testing.assert_allclose(model.elbo((again.X, again.Y)), sparse.elbo(), rtol=1e-5)
    settings = Settings(
        num_layers=2, hidden_dim=2, num_inducing=60, kernel="rbf", hidden_scale=1e-4
    )
    deep = presets.build("mean-field", rows.X, rows.Y, settings)
    start_as_sparse_gp(deep, start.model, rows)
    mean, _ = deep.predict_f(rows.X)
    assert np.sqrt(np.mean((mean - start.model.predict_f(rows.X)[0]) ** 2)) < 0.2


@pytest.mark.parametrize("posterior", ["factorised", "global-inducing"])
def test_bayesian_networks_by_name(posterior: str, tmp_path: Any) -> None:
    X, y = _data(40)
    options: dict[str, Any] = _QUICK | {"steps": 2, "settings": {"hidden_dim": 4}}
    model = f"bnn-{posterior}-scale"
    fitted = DeepGPRegressor(model, **options).fit(X, y, sample_weight=np.arange(40) % 3)
    fitted.save(tmp_path / "fit")
    np.testing.assert_array_equal(load(tmp_path / "fit").predict(X), fitted.predict(X))
    assert fitted.sample_y(X[:3], 2).shape == (3, 2)
    classes = DeepGPClassifier(model, **options).fit(X, np.digitize(y, [-0.5, 0.5]))
    np.testing.assert_allclose(classes.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"model": "mean field"}, "'mean field'"),
        ({"float": "float16"}, "float: expected 'float32' or 'float64'"),
        ({"validation_fraction": 1.0}, "validation_fraction: expected a share"),
        ({"steps": 0}, "steps: expected a positive integer"),
        ({"time_limit": -1.0}, "time_limit: expected a positive number"),
        ({"kernel": "linear"}, "kernel: expected one of"),
        ({"likelihood": "poisson"}, "likelihood: expected 'gaussian' or 'student-t'"),
        ({"settings": {"depth": 3}}, "settings: expected names"),
        ({"settings": {"steps": 3}}, "steps: expected one number, got 5 and, among .*, 3"),
        ({"steps": None, "settings": {"steps": 0}}, "steps: expected a positive integer"),
        ({"num_layers": 0}, "num_layers: expected a positive integer"),
        (
            {"model": "gp", "likelihood": "student-t"},
            "likelihood: expected gaussian for the exact GP",
        ),
    ],
)
def test_parameters_that_cannot_work(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeepGPRegressor(**{"model": "svgp", **_QUICK, **options}).fit(*_data())


@pytest.mark.parametrize("options", [{"steps": 4}, {"time_limit": 60.0, "settings": {"steps": 4}}])
def test_settings_given_are_not_those_of_the_schedule(options: dict[str, Any]) -> None:
    schedule = dict(decay_rate=0.5, decay_steps=3, validate_every=2, patience=7)
    options = dict(options, settings=schedule | options.get("settings", {}))
    fitted = DeepGPRegressor("svgp", num_inducing=5, random_state=0, **options).fit(*_data())
    (member,) = fitted.members_
    assert member.report["steps"] == 4
    used = vars(member.settings)
    assert {name: used[name] for name in (*schedule, "steps")} == schedule | {"steps": 4}


def test_student_t_noise() -> None:
    X, y = _data(80)
    y[::10] += 20.0
    options: dict[str, Any] = dict(steps=200, num_inducing=30, random_state=0)
    fitted = DeepGPRegressor("svgp", likelihood="student-t", **options).fit(X, y)
    gaussian = DeepGPRegressor("svgp", **options).fit(X, y)
    test = _data(100, seed=9)
    assert fitted.log_density(*test).mean() > gaussian.log_density(*test).mean() + 0.5
    assert fitted.sample_y(X[:3], 5).shape == (3, 5)


def test_classes() -> None:
    X, y = _data(80)
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]
    fitted = DeepGPClassifier("svgp", **_QUICK | {"steps": 200}).fit(X, labels)
    probabilities = fitted.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(probabilities))
    assert list(fitted.classes_) == ["high", "low", "middle"] and fitted.score(X, labels) > 0.8
    own = probabilities[np.arange(80), np.searchsorted(fitted.classes_, labels)]
    np.testing.assert_allclose(fitted.log_density(X, labels), np.log(own))
    with pytest.raises(ValueError, match="y: expected labels among .*got 'other'"):
        fitted.log_density(X[:1], ["other"])
    with pytest.raises(ValueError, match="at least two classes.*got one class: \\['low'\\]"):
        fitted.fit(X, labels, sample_weight=labels == "low")


def test_what_starts_from_a_fit_counts_after_a_few_steps() -> None:
    """A model that starts from nothing has learned next to nothing by then."""
    X, y = _data(60)
    for likelihood, targets, starved in (("bernoulli", y > 0, 0.0), ("gaussian", y, 1.0)):
        rows = distinct_rows(X, np.asarray(targets, float)[:, None], None)
        settings = recommended("svgp", len(X), X.shape[1], likelihood=likelihood)
        fitted = fit_family("svgp", settings, rows, None, 2 - int(starved), seed=0, seconds=0.01)
        assert fitted.report["steps"] < 20 and fitted.report["starved"] == starved


def test_of_few_rows_a_short_limit_is_for_one_family_and_then_for_what_there_is_time() -> None:
    X, y = _data(40)
    (alone,) = DeepGPRegressor(time_limit=0.5, random_state=0).fit(X, y).report_
    assert alone["name"] == "gp"
    names = ["constant", "linear", "gp", "rough-gp"]
    tried: list[str] = []

    def fit(name: str, *arguments: Any, **options: Any) -> Any:
        if name not in tried:
            tried.append(name)
        budget.spend(3.0)
        raise TrainingError("as a family that fails")

    rows, budget = distinct_rows(X, y[:, None], None), selection.Budget(5.0)
    with pytest.raises(TrainingError):
        selection.cross_validate(names, fit, rows, budget, 0, lambda line: None)
    assert tried == ["constant", "linear", "gp"]
