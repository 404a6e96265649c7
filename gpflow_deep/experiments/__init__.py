"""
The papers' studies: data sets, splits, models by name, a resumable runner and reports.

Nothing here is imported before it is used, so that the command line answers at once.
"""

from __future__ import annotations
