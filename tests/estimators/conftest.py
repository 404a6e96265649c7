"""What tests of estimators share."""

from ..compiling import evidence_is_compiled_anew, few_steps_are_not_compiled

__all__ = ["evidence_is_compiled_anew", "few_steps_are_not_compiled"]
