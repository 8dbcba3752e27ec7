"""
Traces: one JSON line per round, written without holding up the server, read back line by line.

The first line is the header, ``{"dynspec_trace": 1, ...}``; each further line is a `TraceRound`.
"""

from sglang_dynspec.trace.format import Trace, TraceHeader, TraceRound
from sglang_dynspec.trace.reader import iter_rounds, read_header, read_trace
from sglang_dynspec.trace.writer import TraceWriter, check_trace_path

__all__ = [
    "Trace",
    "TraceHeader",
    "TraceRound",
    "TraceWriter",
    "check_trace_path",
    "iter_rounds",
    "read_header",
    "read_trace",
]
