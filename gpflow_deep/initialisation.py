"""Initial values from data: inducing inputs and the fixed mean functions of hidden layers."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.mean_functions import Identity, Linear, MeanFunction

from .kernels.independent import index_columns
from .numerics.compiled import compiled
from .validation import check_inputs, check_positive_integer, check_seed

__all__ = [
    "greedy_inducing_inputs",
    "inducing_data",
    "kmeans_inducing_inputs",
    "linear_mean_function",
]

# Above this size mini-batch k-means finds centres as good in a fraction of the time.
_MINIBATCH_ABOVE = 20_000
# Greedy selection chooses from so many rows: its memory is theirs times the number of inducing inputs.
_GREEDY_ROWS = 20_000


def kmeans_inducing_inputs(
    X: np.ndarray, num_inducing: int, *, kernel: Kernel | None = None, seed: int = 0
) -> np.ndarray:
    """
    Inducing inputs at the k-means centres of ``X``; the distinct rows themselves where there are no
    more than ``num_inducing`` of them, since coinciding inducing inputs make K_MM singular.

    >>> gd.initialisation.kmeans_inducing_inputs(X, num_inducing=5).shape
    (5, 1)

    :param X: inputs [N, D].
    :param num_inducing: how many inducing inputs, M.
    :param kernel: that is to have them: columns that a ``Coregion`` in it takes for the numbers of outputs
        are those of the nearest rows, as an average of numbers is none.
    :return: [min(M, distinct rows), D].
    :raises TypeError: where ``kernel`` is none of GPflow's.
    """
    # Not needed to use a model that has its inducing inputs, and slow to import.
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.metrics import pairwise_distances_argmin

    X = check_inputs(X, "X")
    num_inducing, seed = check_positive_integer(num_inducing, "num_inducing"), check_seed(seed)
    if not isinstance(kernel, Kernel | None):
        raise TypeError(f"kernel: expected a GPflow kernel, got {kernel!r}.")
    distinct = np.unique(X, axis=0)
    if len(distinct) <= num_inducing:
        return distinct
    method = MiniBatchKMeans if len(X) > _MINIBATCH_ABOVE else KMeans
    centres = (
        method(n_clusters=num_inducing, n_init=1, random_state=seed % 2**32).fit(X).cluster_centers_
    )
    centres = centres.astype(X.dtype)
    columns = index_columns(kernel, X.shape[1]) if kernel is not None else np.empty(0, int)
    if columns.size:
        centres[:, columns] = distinct[pairwise_distances_argmin(centres, distinct)][:, columns]
    return np.unique(centres, axis=0)


def greedy_inducing_inputs(
    X: np.ndarray, num_inducing: int, kernel: Kernel, *, seed: int = 0
) -> np.ndarray:
    """
    Rows of ``X``, each the one whose value under the kernel's GP is the least certain given those at the rows
    before it (Burt, Rasmussen & van der Wilk 2020, *Convergence of sparse variational inference in Gaussian
    processes regression*, section 4.3.1; the pivots of a Cholesky decomposition of K_NN). Where there are
    more than 20,000 rows they are chosen from so many, drawn at random.

    >>> kernel = gpflow.kernels.Matern52()
    >>> gd.initialisation.greedy_inducing_inputs(X, num_inducing=5, kernel=kernel).shape
    (5, 1)

    :param X: inputs [N, D].
    :param num_inducing: how many inducing inputs, M.
    :param kernel: of one output.
    :param seed: of these draws.
    :return: [min(M, distinct rows), D], the most telling first; where the others are certain given these, as
        under long lengthscales, others at random.
    """
    X = check_inputs(X, "X")
    num_inducing, seed = check_positive_integer(num_inducing, "num_inducing"), check_seed(seed)
    if not isinstance(kernel, Kernel) or isinstance(kernel, MultioutputKernel):
        raise TypeError(f"kernel: expected a GPflow kernel of one output, got {kernel!r}.")
    rows = np.unique(X, axis=0)
    rows = np.random.default_rng(seed).permutation(rows)[:_GREEDY_ROWS]
    variance = np.array(kernel(rows, full_cov=False), np.float64)
    least = 4.0 * gpflow.config.default_jitter() * variance.max()
    number = min(num_inducing, len(rows))
    # GPflow's kernels take milliseconds a call outside of a graph.
    column = compiled(lambda row: kernel(row, rows)[0])
    basis = np.zeros((number, len(rows)))
    chosen: list[int] = []
    for m in range(number):
        row = int(np.argmax(variance))
        if variance[row] <= least:
            others = np.flatnonzero(np.isfinite(variance))  # in random order
            chosen.extend(others[: number - m])
            break
        covariance = np.asarray(column(tf.constant(rows[[row]])), np.float64)
        basis[m] = (covariance - basis[:m, row] @ basis[:m]) / np.sqrt(variance[row])
        variance -= np.square(basis[m])
        variance[row] = -np.inf
        chosen.append(row)
    return rows[chosen]


def inducing_data(
    X: np.ndarray, Y: np.ndarray, num_inducing: int, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """
    Inducing inputs that are data, with their targets: where a global inducing posterior starts (Ober &
    Aitchison 2021).

    >>> U0, V = gd.initialisation.inducing_data(X, Y, num_inducing=5)
    >>> U0.shape, V.shape
    ((5, 1), (5, 1))

    :param X: training inputs [N, D].
    :param Y: their targets [N, P].
    :param num_inducing: how many, M.
    :return: [min(M, distinct inputs), D] and [min(M, distinct inputs), P].
    """
    X, Y = check_inputs(X, "X"), check_inputs(Y, "Y")
    if len(X) != len(Y):
        raise ValueError(f"Y: expected as many rows as X, {len(X)}, got {len(Y)}.")
    num_inducing = check_positive_integer(num_inducing, "num_inducing")
    _, distinct = np.unique(X, axis=0, return_index=True)
    chosen = np.random.default_rng(check_seed(seed)).permutation(distinct)[:num_inducing]
    return X[chosen], Y[chosen]


def linear_mean_function(X: np.ndarray, output_dim: int) -> MeanFunction:
    """
    The fixed mean function of a hidden layer (Salimbeni & Deisenroth 2017, section 3): identity where
    the widths agree, the first right singular vectors of ``X`` where it narrows, zero padding where it
    widens. Its parameters are not trained.

    >>> gd.initialisation.linear_mean_function(X, output_dim=3)(X).shape
    TensorShape([20, 3])

    :param X: inputs of the layer [N, D].
    :param output_dim: the layer's width.
    """
    X = check_inputs(X, "X")
    output_dim = check_positive_integer(output_dim, "output_dim")
    input_dim = X.shape[1]
    if input_dim == output_dim:
        return Identity(input_dim)
    if input_dim > output_dim:
        _, _, right = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
        A = np.zeros((input_dim, output_dim), X.dtype)
        num_components = min(output_dim, len(right))
        A[:, :num_components] = right[:num_components].T
    else:
        A = np.eye(input_dim, output_dim, dtype=X.dtype)
    # From the start: set_trainable does not reach a distribution strategy's variables.
    return Linear(
        A=Parameter(A, trainable=False),
        b=Parameter(np.zeros(output_dim, X.dtype), trainable=False),
    )
