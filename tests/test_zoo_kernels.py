"""
Every kernel of GPflow, and those that its users write, in layers and in all families: the values are those
that the kernel gives when it is called for one matrix of inputs, or the refusal is one of `REFUSED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from check_shapes import disable_check_shapes
from gpflow import kernels
from gpflow.kernels import Kernel, Matern32, SquaredExponential, White

import gpflow_deep as gd
from gpflow_deep.layers import covariances
from gpflow_deep.layers.moment_matching import under_gaussian
from gpflow_deep.psi_statistics import Gaussian, NoClosedForm, terms

from . import user_kernels
from .models.contract import FAMILIES, KERNEL_FAMILIES, assert_close, is_joint, randomise
from .user_kernels import OneMatrix

pytestmark = pytest.mark.filterwarnings("ignore:.*experimental:UserWarning")


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    """Shape checks are other tests' business: here they would take most of the time."""
    with disable_check_shapes():
        yield


N, M, S, T = 3, 2, 2, 2
RNG = np.random.default_rng(0)
# The first column is good for classes 0 to 2, too.
X, Z, X = (np.c_[RNG.uniform(0.0, 2.9, size=n), RNG.standard_normal(n)] for n in (N, M, N))


def _change_points() -> Kernel:
    kernel = kernels.ChangePoints([SquaredExponential(), Matern32()], [1.0], steepness=3.0)
    kernel.active_dims = [0]
    return kernel


def _hierarchical(kind: type[Kernel]) -> Kernel:
    """The second feature counts where the first column, rounded down or not, is class 1."""
    condition = kernels.ActivityCondition({0: 1})
    node = kernels.HierarchyNode("conditional", [1], np.array([[-3.0, 3.0]]), condition)
    return kind([node], active_dims=[0, 1])


GPFLOW: dict[type[Kernel], Callable[[], Kernel]] = {
    kernels.ArcCosine: lambda: kernels.ArcCosine(order=1),
    kernels.ArcHierarchical: lambda: _hierarchical(kernels.ArcHierarchical) + White(0.1),
    kernels.ChangePoints: _change_points,
    kernels.Constant: lambda: kernels.Constant(0.4) + White(0.1),
    kernels.Convolutional: lambda: kernels.Convolutional(SquaredExponential(), [1, 2], [1, 1]),
    kernels.Coregion: lambda: kernels.Coregion(3, 1, active_dims=[0]) + White(0.1),
    kernels.Cosine: lambda: kernels.Cosine(lengthscales=[2.0, 3.0]) + White(0.1),
    kernels.Exponential: lambda: kernels.Exponential(0.8, [0.7, 1.2]),
    kernels.Linear: lambda: kernels.Linear([0.5, 0.3]) + White(0.1),
    kernels.Matern12: lambda: kernels.Matern12(0.8, [0.7, 1.2]),
    kernels.Matern32: lambda: kernels.Matern32(0.8, 0.7),
    kernels.Matern52: lambda: kernels.Matern52(0.8, [0.7], active_dims=[1]),
    kernels.Periodic: lambda: kernels.Periodic(SquaredExponential(), period=2.0),
    kernels.Polynomial: lambda: kernels.Polynomial(2, [0.5, 0.3]),
    kernels.Product: lambda: SquaredExponential(lengthscales=2.0) * kernels.Linear([0.5, 0.3]),
    kernels.RationalQuadratic: lambda: kernels.RationalQuadratic(0.8, 0.7),
    kernels.SquaredExponential: lambda: SquaredExponential(0.8, [0.7, 1.2]),
    kernels.Sum: lambda: SquaredExponential(0.8) + Matern32(0.3) + White(0.1),
    kernels.WedgeHierarchical: lambda: _hierarchical(kernels.WedgeHierarchical) + White(0.1),
    kernels.White: lambda: White(0.3),
}
"""One of every class of single-output kernels."""

OURS: dict[str, Callable[[], Kernel]] = {
    "SpectralMixture": lambda: gd.kernels.SpectralMixture([0.8], [[0.2, 0.1]], [[0.1, 0.2]]),
}

_LATENT = (lambda: SquaredExponential(0.8, [0.7, 1.2]), lambda: Matern32(1.3, 0.7))


def _two() -> list[Kernel]:
    return [make() for make in _LATENT]


def _one_twice() -> list[Kernel]:
    return [_LATENT[0]() for _ in range(T)]


MULTI_OUTPUT: dict[str, tuple[Callable[[], Kernel], Callable[[], list[Kernel]]]] = {
    "SharedIndependent": (lambda: kernels.SharedIndependent(_LATENT[0](), T), _one_twice),
    "SeparateIndependent": (lambda: kernels.SeparateIndependent(_two()), _two),
    "StackedStationary": (
        lambda: gd.kernels.StackedStationary(T, Matern32, variance=[1.3, 0.5], lengthscales=0.7),
        lambda: [Matern32(1.3, 0.7), Matern32(0.5, 0.7)],
    ),
    **user_kernels.MULTI_OUTPUT,
}
"""Kernels of T GPs, and the kernels of each."""

ABSTRACT = {
    kernels.AnisotropicStationary,
    kernels.Combination,
    kernels.HierarchicalEmbeddingKernel,
    kernels.IndependentLatent,
    kernels.IsotropicStationary,
    kernels.Kernel,
    kernels.MultioutputKernel,
    kernels.Static,
    kernels.Stationary,
}
MIXED = {kernels.LinearCoregionalization}
"""Tested by themselves, below: their GPs are the layer's, their outputs another matter."""

REFUSED = {"Coregion"}
"""They take classes: the inputs of a first layer with inducing inputs of its own, but no function values."""

SINGLE_OUTPUT: dict[str, Callable[[], Kernel]] = {
    **{kind.__name__: make for kind, make in GPFLOW.items()},
    **OURS,
    **user_kernels.SINGLE_OUTPUT,
}
ALL: dict[str, tuple[Callable[[], Kernel], Callable[[], list[Kernel]]]] = {
    **{name: (make, lambda make=make: [make()]) for name, make in SINGLE_OUTPUT.items()},
    **MULTI_OUTPUT,
}


def test_every_kernel_of_gpflow_has_its_place() -> None:
    exported = vars(kernels).values()
    classes = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, Kernel)}
    multiple = {kernels.SharedIndependent, kernels.SeparateIndependent}
    assert classes == {*GPFLOW, *ABSTRACT, *MIXED, *multiple}


# ---------------------------------------------------------------- layers


def _pair_by_pair(kernel: Kernel, X: np.ndarray, X2: np.ndarray) -> np.ndarray:
    """k(x, x2) of every two points, each by a call of its own."""
    return np.array([[kernel(x[None], z[None]).numpy().item() for z in X2] for x in X])


@pytest.mark.parametrize("name", ALL)
def test_covariances_are_what_the_kernel_says(name: str) -> None:
    make, make_each = ALL[name]
    kernel, each = make(), make_each()
    several = len(each) > 1
    layer = gd.layers.GPLayer(kernel, Z.copy(), T)
    inducing_variable = layer.own_inducing_variable
    cross = np.stack([_pair_by_pair(k, Z, X) for k in each])
    own = np.stack([k(Z).numpy() for k in each])
    variance = np.stack([k(X, full_cov=False) for k in each], axis=-1)
    shared = isinstance(kernel, kernels.SharedIndependent) and type(kernel).__module__.startswith(
        "gpflow"
    )
    if shared:
        cross, own, variance = cross[:1], own[:1], variance[:, :1]
    squeeze = (lambda K: K) if several and not shared else (lambda K: K[0])
    assert_close(covariances.Kuf(inducing_variable, kernel, tf.constant(X)), squeeze(cross))
    assert_close(covariances.Kuu(inducing_variable, kernel, 0.0), squeeze(own))
    assert_close(covariances.prior_variance(kernel, tf.constant(X)), variance)
    # Groups of points, of which each must be seen by itself.
    groups, others = (np.stack([x, x[::-1] + [0.0, 0.5]]) for x in (X, Z))
    crosses = np.stack(
        [[_pair_by_pair(k, *group) for k in each] for group in zip(groups, others, strict=True)]
    )
    owns = np.stack([[k(x).numpy() for k in each] for x in groups])
    if shared:
        crosses, owns = crosses[:, :1], owns[:, :1]
    for function in (covariances.local_covariances, covariances.batch_covariance):
        assert_close(function(kernel, tf.constant(groups), tf.constant(others)), crosses)
        assert_close(function(kernel, tf.constant(groups)), owns)
    untried = make()  # in a graph, too, a trial says what a kernel takes
    compiled = tf.function(lambda x: covariances.local_covariances(untried, x), autograph=False)
    assert_close(compiled(tf.constant(groups)), owns)
    one_set = covariances.batch_covariance(kernel, tf.constant(groups[:1]), tf.constant(others))
    assert_close(one_set[0], crosses[0])


# ---------------------------------------------------------------- families

Made = Sequence[Kernel]


def _model(family: str, kernels_of_layers: Made) -> Any:
    layers = [
        gd.layers.GPLayer(
            kernel, Z.copy(), len(getattr(kernel, "kernels", "12")), name=f"layer_{index}"
        )
        for index, kernel in enumerate(kernels_of_layers)
    ]
    return FAMILIES[family](
        layers,
        gpflow.likelihoods.Gaussian(0.1),
        num_data=N,
        num_samples=S,
        num_prediction_samples=S,
    )


def _assert_same_model(family: str, made: Made, called: Made, names: Sequence[str]) -> None:
    """Two models are the same, whose kernels are the same objects or make calls of them."""
    model, expected = _model(family, made), _model(family, called)
    randomise(model)
    values = gpflow.utilities.read_values(model)
    own = {path: value for path, value in values.items() if ".kernel" not in path}
    gpflow.utilities.multiple_assign(expected, own)
    marginals, calls = (one.predict_f_mixture(X)[:2] for one in (model, expected))
    for name, *moments in zip(names, *(np.moveaxis(x, -1, 0) for x in (*marginals, *calls))):
        # Moments that the one has in closed form are sums over nodes in the other.
        tolerance = 1e-3 if family == "fitc-ep" else 1e-6
        for actual, wanted in zip(moments[:2], moments[2:], strict=True):
            np.testing.assert_allclose(actual, wanted, tolerance, tolerance, err_msg=name)
    if len(made) == 1 and is_joint(model):
        joint = [one.predict_f(X, full_cov=True) for one in (model, expected)]
        assert_close(*joint, rtol=tolerance, atol=tolerance)


#: Those that ask layers for different things: projections, batches, moments. To the others a few kernels
#: will do: the small groups of amortised ones are what the covariances above are tested on.
WAYS = ("mean-field", "global-inducing", "fitc-ep")
#: All but those that differ in their posteriors alone, which no kernel enters.
OF_LAYERS = (*WAYS, "amortized-samples", "sampled")
FEW = ("own K in a sum", "own call", "one matrix, fixed axes")


@pytest.mark.parametrize("family", OF_LAYERS)
def test_models_of_one_and_two_layers(family: str) -> None:
    """The only layer, and one above another, with a GP of each kernel."""
    for depth in (1, 2):
        given = depth == 1 and not family.startswith("amortized")
        names = [name for name in SINGLE_OUTPUT if given or name not in REFUSED]
        if family not in WAYS:
            names = list(FEW)
        elif depth == 1:  # all the others meet inputs of one axis less, as in the covariances above
            names = [*FEW, *REFUSED & set(names)]
        each = [SINGLE_OUTPUT[name]() for name in names]
        made = [SquaredExponential()] * (depth - 1) + [kernels.SeparateIndependent(each)]
        called = made[:-1] + [kernels.SeparateIndependent([OneMatrix(k) for k in each])]
        _assert_same_model(family, made, called, names)


@pytest.mark.parametrize("family", KERNEL_FAMILIES)
def test_indices_are_refused_where_inputs_are_values_of_gps(family: str) -> None:
    """Coregion takes a column of its inputs for the numbers of outputs."""
    kernel = SINGLE_OUTPUT["Coregion"]()
    above = kernels.SeparateIndependent([SquaredExponential(), kernel])
    with pytest.raises(ValueError, match=r"expected (Coregion in the first|one without Coregion)"):
        _model(family, [SquaredExponential(), above])


@pytest.mark.parametrize("family", OF_LAYERS)
def test_models_of_multi_output_kernels(family: str) -> None:
    made = [user_kernels.MULTI_OUTPUT[name][0]() for name in ("own shared", "own separate")]
    called = [
        kernels.SeparateIndependent([OneMatrix(_Latent(kernel, t)) for t in range(T)])
        for kernel in made
    ]
    _assert_same_model(family, made, called, ["first GP", "second GP"])


class _Latent(Kernel):
    """One GP of a multi-output kernel."""

    def __init__(self, kernel: Kernel, gp: int) -> None:
        super().__init__()
        self.kernel, self.gp = kernel, gp

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return self.kernel(X, X2, full_cov=True, full_output_cov=False)[self.gp]

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.kernel(X, full_cov=False, full_output_cov=False)[..., self.gp]


# ---------------------------------------------------------------- expectations under a Gaussian

CLOSED_FORMS = {
    *("Constant", "Cosine", "Linear", "Product", "SquaredExponential", "White", "SpectralMixture"),
    *("no methods of its own",),
}


@pytest.mark.parametrize("name", SINGLE_OUTPUT)
def test_closed_forms_are_of_no_other_kernels(name: str) -> None:
    kernel = SINGLE_OUTPUT[name]()
    if name not in CLOSED_FORMS:
        with pytest.raises(NoClosedForm):
            terms(kernel, 2)
        return
    layer = gd.layers.GPLayer(SquaredExponential(), Z.copy(), 1)
    layer.kernel = kernel
    inputs = Gaussian(tf.constant(X), tf.constant(RNG.uniform(0.05, 0.2, X.shape)))
    A, W = tf.constant([[0.5, -0.3]], tf.float64), tf.zeros([1, M, M], tf.float64)
    exact = under_gaussian(layer, inputs, A, W)
    layer.kernel = OneMatrix(kernel)
    assert_close(exact, under_gaussian(layer, inputs, A, W), rtol=1e-5, atol=1e-6)


def test_few_points_tell_how_a_kernel_takes_batches() -> None:
    """A convolutional kernel of as many images as pixels, and one more, would take all of the memory."""
    seen: list[int] = []

    class Recording(gpflow.kernels.Convolutional):
        def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
            seen.append(int(np.prod(X.shape[:-1])))
            return super().K(X, X2)

    size = (14, 14)
    kernel = Recording(gpflow.kernels.SquaredExponential(), size, (3, 3))
    patches = gpflow.inducing_variables.InducingPatches(
        np.random.default_rng(0).uniform(size=(20, 9))
    )
    gd.models.DeepGP([gd.layers.GPLayer(kernel, patches, 1)], gpflow.likelihoods.Bernoulli())
    assert seen and max(seen) <= 8
