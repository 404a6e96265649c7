"""
Predictions, written once for all deep models: every one of them predicts a weighted mixture of
Gaussians over the last layer's functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf
from check_shapes import check_shape, check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorType
from gpflow.models import GPModel

from ..likelihoods import predict_log_density, predict_mean_and_var
from ..likelihoods.kinds import has_functions
from ..likelihoods.scale_mixtures import noise_scales
from ..numerics.parts import in_parts, part_size
from ..validation import check_memory, check_positive_integer
from .inputs import TakesInputs, as_rows
from .mixture import (
    Mixture,
    Noise,
    equal_log_weights,
    joint_covariance,
    moments,
    with_noise_scales,
)

__all__ = ["MixturePredictor", "Prediction"]

#: What was prepared, the draws or sites [S, N or 1, T_l] of the hidden layers, ``None`` where nothing is
#: drawn, and the logarithms of the components' weights [S].
Prediction = tuple[Any, list[TensorType | None], tf.Tensor]


_PACKAGE = __name__.partition(".")[0] + "."
_BY_MOMENTS: Any = GPModel  # a posterior is no such model, but predicts alike

#: How many numbers there are at most for each of the covariances of whole functions, as measured.
_COPIES = 5
#: And how many numbers these may be, where functions are drawn a part of them at a time.
_NUMBERS = 2**26
#: How many means of functions a likelihood with functions of the inputs takes at once.
_OBSERVED = 2**24


class MixturePredictor(TakesInputs, ABC):
    """
    GPflow's predictions for a model whose functions are a mixture of Gaussians.

    Where a user's class has a ``predict_f`` of its own, draws, observations and log densities are of the
    moments that it gives, as of GPflow's models, and so are those of a posterior of the model, whose own
    ``predict_f`` is what the cache says.

    What the components are, a model says by the methods at the beginning; a posterior asks its model, with
    what it has computed before. AutoGraph is kept out, here as in the models: there is no Python control
    flow to convert, and to look for it takes most of the time of tracing.
    """

    #: Whether components are draws through hidden layers and of nothing else.
    _draws_can_be_learned = False

    #: What components depend on besides what is prepared, such as their number.
    _settings_of_predictions: tuple[Any, ...] = ()

    @abstractmethod
    def _prepare(self) -> Any:
        """All that the predictions need and that no input enters."""

    @abstractmethod
    def _prediction(self, prepared: Any, num_samples: int | None, noise: Noise) -> Prediction:
        """
        What the components are made of: what was prepared, the draws or sites [S, N or 1, T_l] of the hidden
        layers, and the logarithms of the components' weights [S].
        """

    @abstractmethod
    def _mixture(
        self,
        X: tf.Tensor,
        prediction: Prediction,
        full_output_cov: bool = False,
    ) -> Mixture:
        """The components at each point, or likewise with the covariance of the outputs [S, N, P, P]."""

    @abstractmethod
    def _joint_mixture(self, X: tf.Tensor, prepared: Any, full_output_cov: bool = False) -> Mixture:
        """
        Likewise with the covariance of the points as variances, [S, P, N, N], or that of points and outputs,
        [S, N, P, N, P].
        """

    @abstractmethod
    def _sample_f(self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: Any) -> tf.Tensor:
        """Draws of the last layer's functions [S, N, P], coherent over the points if ``full_cov``."""

    @tf.autograph.experimental.do_not_convert
    def predict_f_mixture(
        self, Xnew: InputData, num_samples: int | None = None, noise: Noise = None
    ) -> Mixture:
        """
        The components of the posterior of the last layer's functions, point by point.

        :param Xnew: inputs [N, D].
        :param num_samples: number of components S; the model's ``num_prediction_samples`` by default. Where
            points travel by learned sites, these are the components, whatever it says.
        :param noise: the standard normal draws that the components are made of, in place of the model's own:
            those of hidden layers, [S, N, T_l] or, the same for all points, [S, 1, T_l]; of models that draw
            inducing outputs or weights, those of the layers that predictions draw.
        :return: means [S, N, P], variances [S, N, P], log weights [S].
        """
        X = self._as_matrix(Xnew)
        return self._components(X, self._prediction(self._prepare(), num_samples, noise))

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "Xnew: [batch..., N, D]",
        "return[0]: [batch..., N, P]",
        "return[1]: [batch..., N, P, N, P] if full_cov and full_output_cov",
        "return[1]: [batch..., P, N, N] if full_cov and (not full_output_cov)",
        "return[1]: [batch..., N, P, P] if (not full_cov) and full_output_cov",
        "return[1]: [batch..., N, P] if (not full_cov) and (not full_output_cov)",
    )
    def predict_f(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        noise: Noise = None,
    ) -> MeanAndVariance:
        """
        Mean and variance of the posterior of the last layer's functions: moments of the mixture.

        The same call gives the same answer: its draws are fixed by the model's ``seed`` (compiled by XLA,
        inducing outputs that are drawn are another generator's). With ``full_cov``
        the correlations of the points are those of ``num_prediction_samples`` draws of whole functions; the
        mean and the variances on the diagonal are those without it.

        :param Xnew: inputs.
        :param full_cov: return the covariance over the points (cubic in N).
        :param full_output_cov: return the covariance over the outputs.
        :param noise: of the mean and the variances, as for :meth:`predict_f_mixture`.
        """
        if not full_cov:
            return self._by_rows("f", Xnew, noise, full_output_cov)
        X = self._as_joint_inputs(Xnew)
        _check_room(X, self._num_joint_samples)
        prepared = self._prepare()
        prediction = self._prediction(prepared, None, noise)

        def joint(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            mean, variance = moments(self._mixture(X, prediction))
            components = self._joint_mixture(X, prepared, full_output_cov)
            return mean, joint_covariance(components, variance, full_output_cov)

        if X.shape.rank == 2:
            return joint(X)
        tail = ["N", "P", "N", "P"] if full_output_cov else ["P", "N", "N"]
        return self._over_batches(joint, X, [["N", "P"], tail])

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "Xnew: [batch..., N, D]",
        "return: [batch..., N, P] if (num_samples is None)",
        "return: [batch..., S, N, P] if (num_samples is not None)",
    )
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """
        Draws from the posterior of the last layer's functions, new ones at each call.

        :param Xnew: inputs.
        :param num_samples: number of draws; a single one without the sample axis by default.
        :param full_cov: draw coherent functions over all points (cubic in N), as GPflow does by default,
            rather than each point by itself.
        :param full_output_cov: accepted for GPflow's sake: draws of one point are always coherent over
            the outputs.
        """
        if (own := self._own_moments) is not None:
            return _BY_MOMENTS.predict_f_samples(own, Xnew, num_samples, full_cov, full_output_cov)
        S = 1 if num_samples is None else check_positive_integer(num_samples, "num_samples")
        X = self._as_joint_inputs(Xnew) if full_cov else self._as_inputs(Xnew)
        prepared = self._prepare()

        if full_cov:
            _check_room(X, 1)

        def draw(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            size = S
            if full_cov and X.shape[0]:
                size = max(1, min(S, _NUMBERS // (_COPIES * int(X.shape[0]) ** 2)))
            if size == S:
                return (self._sample_f(X, S, full_cov, prepared),)
            # Each has a covariance of its own, of all points: some draws at a time.
            parts = tf.map_fn(
                lambda _: self._sample_f(X, size, full_cov, prepared),
                tf.range(-(-S // size)),
                fn_output_signature=X.dtype,
            )
            return (tf.reshape(parts, [-1, X.shape[0], self._output_dim])[:S],)

        if X.shape.rank == 2:
            (draws,) = draw(X)
        else:
            (draws,) = self._over_batches(draw, X, [[S, "N", "P"]])
        return tf.squeeze(draws, axis=-3) if num_samples is None else draws

    @tf.autograph.experimental.do_not_convert
    def predict_y_mixture(
        self, Xnew: InputData, num_samples: int | None = None, noise: Noise = None
    ) -> Mixture:
        """
        The components of the predictive distribution of new observations, by their means and variances:
        exact for a Gaussian likelihood, of the right means and variances for others. A Student-t takes
        eight components for each of the functions', of different noise, and so has its tails; the noise of
        several outputs is then large in all of them or in none. Log densities of such likelihoods are those
        of :meth:`predict_log_density`, not of this mixture.

        :param Xnew: inputs [N, D].
        :param num_samples: as for :meth:`predict_f_mixture`.
        :param noise: likewise.
        :return: means [S, N, P], variances [S, N, P], log weights [S]; 8 S of each for a Student-t.
        """
        Xnew = self._as_matrix(Xnew)
        if (own := self._own_moments) is not None:
            mean, variance = own.predict_f(Xnew)
            functions = Mixture(mean[None], variance[None], equal_log_weights(1))
        else:
            prediction = self._prediction(self._prepare(), num_samples, noise)
            functions = self._components(Xnew, prediction)
        observed = self._observed(Xnew, functions)
        scales = noise_scales(self.likelihood)
        return observed if scales is None else with_noise_scales(functions, observed, *scales)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "Xnew: [batch..., N, D]",
        "return[0]: [batch..., N, P]",
        "return[1]: [batch..., N, P]",
    )
    def predict_y(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        noise: Noise = None,
    ) -> MeanAndVariance:
        """
        Mean and variance of new observations.

        :param full_cov: as in GPflow, only ``False`` is possible.
        :param full_output_cov: likewise.
        :param noise: as for :meth:`predict_f_mixture`.
        """
        _refuse_covariances("predict_y", full_cov or full_output_cov)
        if (own := self._own_moments) is not None:
            return _BY_MOMENTS.predict_y(own, Xnew)
        return self._by_rows("y", Xnew, noise)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "data[0]: [batch..., N, D]",
        "return: [batch..., N]",
    )
    def predict_log_density(
        self,
        data: RegressionData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        noise: Noise = None,
    ) -> tf.Tensor:
        """
        Log density of new observations: the logarithm of the average predictive density over the
        components (the papers' marginal test log-likelihood).

        :param data: inputs and observations.
        :param full_cov: as in GPflow, only ``False`` is possible.
        :param full_output_cov: likewise.
        :param noise: as for :meth:`predict_f_mixture`.
        """
        _refuse_covariances("predict_log_density", full_cov or full_output_cov)
        X, Y = self._check_observations(data)
        check_shape(Y, "[batch..., N, P]")
        if (own := self._own_moments) is not None:
            return _BY_MOMENTS.predict_log_density(own, (X, Y))
        (densities,) = self._by_rows("log density", X, noise, False, Y)
        return densities

    # What they are made of.

    @property
    def _own_moments(self) -> MixturePredictor | None:
        """Whose ``predict_f`` says what the moments of the functions are, where a user's class has one."""
        is_ours = getattr(self.predict_f, "__module__", "").startswith(_PACKAGE)
        return None if is_ours else self

    @property
    def _num_joint_samples(self) -> int:
        """How many draws of whole functions a covariance over points is made of."""
        return 1

    @property
    def _width(self) -> int:
        """Numbers that a point is in the widest layer, where they may be thousands."""
        return 1

    def _part_size(self, prediction: Prediction) -> int:
        """How many points a prediction takes at once: all, where each has draws of its own."""
        if any(z is not None and z.shape[1] != 1 for z in prediction[1]):
            return 2**31 - 1
        return part_size(int(prediction[2].shape[0] or 1), self._width)

    def _components(self, X: tf.Tensor, prediction: Prediction) -> Mixture:
        """All components of all points [N, D]: a part of the points at a time."""
        part = partial(self._part, "components", prediction, False)
        means, variances = in_parts(part, [X], self._part_size(prediction), 2, axis=1)
        return Mixture(means, variances, prediction[2])

    def _part(
        self,
        what: str,
        prediction: Prediction,
        full_output_cov: bool,
        X: tf.Tensor,
        *targets: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """
        Of a part of the points what is asked for.

        :param what: "components", their moments as of "f" or "y", or the "log density" of targets.
        """
        if self._calls_functions(what):
            f = self._components(X, prediction)
        else:
            f = self._mixture(X, prediction, full_output_cov)
        if what == "components":
            return f[:2]
        if what == "f":
            return moments(f, full_output_cov)
        if what == "y":
            return moments(self._observed(X, f))
        return (self._log_density(X, f, *targets),)

    def _by_rows(
        self,
        what: str,
        Xnew: InputData,
        noise: Noise,
        full_output_cov: bool = False,
        *targets: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """:meth:`_part` of all points, so that no more than a part's components are ever there."""
        X = self._as_inputs(Xnew)
        flat = [x if x.shape.rank == 2 else as_rows(x) for x in targets]
        flat.insert(0, X if X.shape.rank == 2 else as_rows(X, self._input_dim))
        num_outputs = 1 if targets else 2
        part, size = self._in_parts(what, noise, full_output_cov, flat)
        results = in_parts(part, flat, size, num_outputs)
        if X.shape.rank == 2:
            return results
        batch = tf.shape(X)[:-1]
        shapes = [tf.concat([batch, x.shape[1:]], axis=0) for x in results]
        return tuple(tf.reshape(x, shape) for x, shape in zip(results, shapes))

    def _in_parts(
        self, what: str, noise: Noise, full_output_cov: bool, arrays: Sequence[tf.Tensor]
    ) -> tuple[Callable[..., tuple[tf.Tensor, ...]], int]:
        """:meth:`_part` as a function of arrays like these, and how many rows it takes at once."""
        del arrays  # a posterior compiles it for their types
        prediction = self._prediction(self._prepare(), None, noise)
        part = partial(self._part, what, prediction, full_output_cov)
        size = self._part_size(prediction)
        if self._calls_functions(what):
            each = int(prediction[2].shape[0] or 1) * (self._output_dim or 1)
            size = max(size, _OBSERVED // each)
        return part, size

    def _calls_functions(self, what: str) -> bool:
        """Whether it takes functions of the inputs, which may have a value for each row of all."""
        return what in ("y", "log density") and has_functions(self.likelihood)

    def _observed(self, X: tf.Tensor, f: Mixture) -> Mixture:
        mean, variance = self._through_likelihood(predict_mean_and_var, X, f)
        return Mixture(mean, variance, f.log_weights)

    def _log_density(self, X: tf.Tensor, f: Mixture, Y: tf.Tensor) -> tf.Tensor:
        """Log of the weighted average predictive density of each observation, [N]."""
        log_densities = self._through_likelihood(predict_log_density, X, f, Y)
        return tf.reduce_logsumexp(log_densities + f.log_weights[:, None], axis=0)

    def _through_likelihood(
        self, function: Callable, X: tf.Tensor, f: Mixture, *observations: tf.Tensor
    ) -> tf.nest.Structure:
        """A function of (likelihood, X, mean, variance[, Y]) for all components at once."""
        return function(self.likelihood, X, f.means, f.variances, *observations)


def _check_room(X: tf.Tensor, num_draws: int) -> None:
    """Whether there is memory for covariances over the points of ``X``, if their number is known by now."""
    if X.shape[-2] is not None:
        N = int(X.shape[-2])
        # The covariances, and what they are made of and summed by.
        what = f"{_COPIES} times the covariances of {N:,} points, one for each of {num_draws} draws"
        check_memory(_COPIES * num_draws * N * N, what, "Xnew")


def _refuse_covariances(name: str, asked: bool) -> None:
    if asked:
        raise NotImplementedError(
            f"{name}: expected full_cov=False and full_output_cov=False, got True."
        )
