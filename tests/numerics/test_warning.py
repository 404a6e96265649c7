"""What is logged that says nothing to users."""

from __future__ import annotations

import logging

import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_deep.numerics.warning import complex_casts_unsaid


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def test_casts_of_effective_sample_sizes_are_not_logged_and_all_else_is() -> None:
    logger, said = tf.get_logger(), _Said()
    chains = tf.random.normal([20, 2], dtype=tf.float64)
    logger.addHandler(said)
    try:
        with complex_casts_unsaid():
            tfp.mcmc.effective_sample_size(chains, cross_chain_dims=1)
            logger.warning("something else")
        filters = list(logger.filters)
    finally:
        logger.removeHandler(said)
    assert said.messages == ["something else"] and not filters
