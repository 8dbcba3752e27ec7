"""
The configuration: what a user can set, and the ways to set it.

`model` is the configuration itself. It is put together from `sources` (flags, a TOML file, the
environment); `flags` are those we add to SGLang's command line, and `enabling` is how engines that
are started from Python get it.
"""

from sglang_dynspec.config.model import Config, ResolvedConfig

__all__ = ["Config", "ResolvedConfig"]
