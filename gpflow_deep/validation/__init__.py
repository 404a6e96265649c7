"""Checks at the door: every error names the argument, what was expected and what came."""

from .arrays import (
    as_array,
    as_draws,
    as_real_array,
    as_real_tensor,
    check_finite,
    check_inducing_variable,
    check_inputs,
    check_noise,
    check_positive_array,
    images_as_rows,
    refuse_non_finite,
)
from .numbers import (
    check_choice,
    check_flag,
    check_memory,
    check_number,
    check_positive_integer,
    check_positive_integers,
    check_positive_number,
    check_seed,
    check_sequence_of,
    check_share,
)
from .observations import as_num_data, check_num_data, check_pair, check_targets, observation_dim
from .replicas import check_one_replica

__all__ = [
    "as_array",
    "as_draws",
    "as_num_data",
    "as_real_array",
    "as_real_tensor",
    "check_choice",
    "check_finite",
    "check_flag",
    "check_inducing_variable",
    "check_inputs",
    "check_memory",
    "check_noise",
    "check_num_data",
    "check_number",
    "check_one_replica",
    "check_pair",
    "check_positive_array",
    "check_positive_integer",
    "check_positive_integers",
    "check_positive_number",
    "check_seed",
    "check_sequence_of",
    "check_share",
    "check_targets",
    "images_as_rows",
    "observation_dim",
    "refuse_non_finite",
]
