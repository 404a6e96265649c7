"""
The command `gpflow-deep`.

Nothing here is imported before it is used, so that the command line answers at once.
"""

from __future__ import annotations
