"""What users never import: linear algebra, draws, bijectors, compiled functions."""

from __future__ import annotations
