"""All cases, by what they are about."""
from runner import CASES

from . import bytes, cached, clients, decode, lanes, limits, messages, mismatch, pauses, prefill, restarts, router, steps, streams  # noqa: F401

__all__ = ["CASES"]
