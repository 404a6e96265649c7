"""Settings that follow the data: what this package would choose for a family."""

from __future__ import annotations

from dataclasses import replace

from .registry import EXACT, LINEAR, SITES, get
from .settings import CLASSES, Settings

__all__ = ["recommended", "scheduled"]

#: The learning rate falls to this share of its start over a run, in a hundred stairs.
_LAST_RATE = 0.01
_STAIRS = 100
_LOOKS = 25  # at the held-out rows
_TEMPERED = 0.2  # of a network's steps: on small data it gains up to a nat, and hardly loses

_WIDEST = 20  # hidden layers are as wide as the input up to here
_WIDEST_OF_SITES = 8  # more take longer, and learn less in the same time or more by heart
_UNITS = 50  # of a network's hidden layers
_BATCH = 512

_AMORTISED = frozenset({"ar1", "ar2", "ar2p", "ar2pp"})
_LOCAL = _AMORTISED | {"sgp-avi", "idsgp"}
_SAMPLED = frozenset({"sghmc"})
_LATENT = frozenset({"latent-variable"})
_STRUCTURED = frozenset({"svgp", "solve-gp", "mean-field", "stripes-and-arrow", "fully-coupled"})
_FROM_NOISE = _STRUCTURED | {"global-inducing"}
_ONE_LAYER = frozenset(
    {"gp", "rough-gp", LINEAR, "svgp", "solve-gp", "ppgpr", "fitc-gp", "sgp-avi", "idsgp"}
)


def scheduled(settings: Settings, steps: int) -> Settings:
    """
    The same for a run of so many steps: the learning rate falls to a hundredth over it, and there are 25
    looks at the held-out rows, of which the best is kept.

    >>> settings = gd.presets.scheduled(gd.presets.Settings(), steps=1000)
    >>> settings.steps, settings.validate_every
    (1000, 40)
    """
    return replace(
        settings,
        steps=steps,
        tempering_steps=-(-settings.tempering_steps * steps // settings.steps),
        decay_rate=_LAST_RATE ** (1 / _STAIRS),
        decay_steps=max(1, steps // _STAIRS),
        validate_every=max(1, steps // _LOOKS),
        patience=_LOOKS + 1,
    )


def recommended(
    name: str,
    num_rows: int,
    num_inputs: int,
    *,
    likelihood: str = "gaussian",
    num_layers: int | None = None,
    started: bool = False,
) -> Settings:
    """
    Settings of a family for data of some size, standardised.

    Structured posteriors and global inducing points start with all of the data as noise, so that
    hyperparameters move before anything is fitted, and from a rate of 0.1. After 400 steps a mean-field
    model's density of held-out points is half a nat higher on average than from noise of 0.1 and half the
    rate. Structured posteriors choose inducing inputs greedily, which gains 0.02 more. One draw in training
    is as good as five at half the time. Hidden layers have as many GPs as there are inputs, up to twenty;
    those of sigma point processes up to eight; networks have fifty units. Sigma point processes and exact
    GPs learn lengthscales and variances by their logarithms. With a latent variable models start from less
    noise, 0.3, and five importance samples: from all of the data as noise, or with one sample, they stay
    with one broad Gaussian where targets have two modes; from 0.1 they take longer to fit calm data closely.

    >>> gd.presets.recommended("stripes-and-arrow", num_rows=500, num_inputs=8).num_inducing
    89

    :param name: of a preset; for a paper's the settings are the paper's, save for those given.
    :param num_rows: training points, N.
    :param num_inputs: D.
    :param likelihood: as `Settings.likelihood` has it.
    :param num_layers: of deep families; by default two, or as many as the paper has.
    :param started: whether an earlier fit or an exact GP gives the initial values: a high rate would undo
        them.
    :raises ValueError: for other names, and numbers that are not positive.
    """
    preset = get(name)
    # Not above: help by the command line does not wait for TensorFlow.
    from gpflow_deep.validation import check_positive_integer

    check_positive_integer(num_rows, "num_rows")
    check_positive_integer(num_inputs, "num_inputs")
    if preset.defaults is not None:
        own = replace(preset.settings(), likelihood=likelihood)
        return preset.settings(own if num_layers is None else replace(own, num_layers=num_layers))
    # FITC-EP and predictive objectives were tried too: they lose on some sets what they gain on others.
    is_fast = name in _FROM_NOISE and not started
    classes = likelihood in CLASSES
    is_network = name.startswith("bnn-")
    # The exact GP chooses by the evidence; networks have none.
    has_own_kernel = name == "gp" or name.startswith("fitc") or name in _SAMPLED or is_network
    steps = 6000 if is_network else 3000 if name in _LOCAL | _SAMPLED else 1500
    latent = name in _LATENT
    is_quick = is_fast or (latent and not started)
    # A latent variable is one of the layers' inputs.
    width = min(num_inputs + latent, _WIDEST_OF_SITES if name in SITES else _WIDEST)
    settings = Settings(
        num_layers=1 if name in _ONE_LAYER else num_layers or 2,
        hidden_dim=_UNITS if is_network else width,
        num_inducing=_num_inducing(name, num_rows),
        num_samples=8 if name in SITES | _AMORTISED else 5 if latent else 1,
        likelihood_variance=1.0 if is_fast else 0.3 if is_quick else 0.1,
        steps=steps,
        tempering_steps=int(_TEMPERED * steps) if is_network else 0,
        noise_floor=1e-5,
        test_samples=50,  # a hundred take twice the time of every prediction
        batch_size=128 if name in _LOCAL else _BATCH,
        learning_rate=0.1 if is_quick else 0.01 if name in _LOCAL else 0.05,
        kernel="own" if has_own_kernel else "matern52",
        likelihood=likelihood,
        # Of classes, whose inputs are often many, k-means was as good or better.
        inducing_init="greedy" if name in _STRUCTURED and not classes else "kmeans",
        # Twice the steps in the same time; an exact GP's precision follows its noise.
        compute_dtype="own" if name in EXACT else "float32",
        # By their logarithms lengthscales of hundreds, of inputs that do not count, are a few steps away;
        # at a high rate, from nothing but noise, so are those of inputs that count.
        positive_bijector="exp" if name in EXACT or name in SITES else "own",
    )
    if name in _SAMPLED:
        # Chains follow hyperparameters at a distance, and small batches would be their noise.
        settings = replace(settings, learning_rate=0.02, batch_size=2 * _BATCH)
    return preset.settings(scheduled(settings, steps))


def _num_inducing(name: str, num_rows: int) -> int:
    """Growing with the data: as the square root, to where a step's cost is that of its factorisations."""
    if name in _LOCAL:
        return 8
    most = 256 if name in _ONE_LAYER else 128
    return int(min(max(4.0 * num_rows**0.5, 20), most))
