"""
Families by name: settings with their reasons, and builders from data. The estimators, the command line and
the studies all use them.
"""

from __future__ import annotations

from .recommended import recommended, scheduled
from .registry import Builder, Preset, build, get, names, register
from .settings import Settings

__all__ = [
    "Builder",
    "Preset",
    "Settings",
    "build",
    "get",
    "names",
    "recommended",
    "register",
    "scheduled",
]
