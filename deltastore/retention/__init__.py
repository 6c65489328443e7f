"""Applies retention policies (`core/retention.py`) to the threads of a storage."""

from deltastore.retention.passes import Choice, Retention

__all__ = ["Choice", "Retention"]
