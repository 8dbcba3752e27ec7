"""
The errors this project raises on purpose.

Everything derives from `DynspecError`, so that one ``except`` catches all of it. Errors a person is
expected to act on say three things: what was expected, what was found, and what to do about it.
"""

from collections.abc import Callable
from typing import Self, TypeVar


class DynspecError(Exception):
    """
    Base class of every error of this project.
    """


class ExplainedError(DynspecError):
    """
    An error that says what was expected, what was found, and what to do.

    Attributes:
        expected: What would have been right, as the end of "expected ...".

        found: What was there instead, as the end of "found ...".

        remedy: What to do about it, as a sentence without a full stop.
    """

    def __init__(self, *, expected: str, found: str, remedy: str) -> None:
        super().__init__(f"expected {expected}; found {found}; {remedy}")
        self.expected = expected
        self.found = found
        self.remedy = remedy

    # BaseException pickles `args` alone, which keyword-only arguments do not accept back.
    def __reduce__(self) -> tuple[Callable[..., Self], tuple[type[Self], str, str, str]]:
        return _rebuilt, (type(self), self.expected, self.found, self.remedy)


E = TypeVar("E", bound="ExplainedError")


def _rebuilt(kind: type[E], expected: str, found: str, remedy: str) -> E:
    return kind(expected=expected, found=found, remedy=remedy)


class ConfigError(ExplainedError, ValueError):
    """
    A setting is refused. Raised before the model loads wherever that is possible.
    """


class SeamError(ExplainedError):
    """
    SGLang does not look the way a seam needs it to.
    """


class ServerError(ExplainedError):
    """
    A running server does not answer, or is not what a command needs.
    """


class TraceError(ExplainedError, ValueError):
    """
    A file is not a trace this version can read.
    """


class PolicyError(DynspecError):
    """
    A policy returned something other than a `Plan` for one of the candidate depths.
    """
