"""
Commands that need to know SGLang.

The core finds those of `dynspec` by entry point; `baseline` is what `make baseline` runs.
"""
