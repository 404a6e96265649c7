"""From a table to predictions in original units: scaling, hold-out, model, training, saving and loading."""

from __future__ import annotations
