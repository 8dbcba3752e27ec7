"""Engines of these tests, through the fixture that users have."""

from sglang_dynspec.testing import dynspec_engine

__all__ = ["dynspec_engine"]
