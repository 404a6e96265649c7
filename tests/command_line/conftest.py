"""What tests of the command line share."""

from ..compiling import few_steps_are_not_compiled

__all__ = ["few_steps_are_not_compiled"]
