"""
The pluggy markers: `hookimpl` for plugins, `hookspec` for our own specifications.
"""

import pluggy

#: The name plugins are matched by, and the entry-point group they are loaded from.
PROJECT = "sglang_dynspec"

hookimpl = pluggy.HookimplMarker(PROJECT)
hookspec = pluggy.HookspecMarker(PROJECT)
