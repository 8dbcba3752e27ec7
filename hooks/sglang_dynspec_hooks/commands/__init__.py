"""Commands of `dynspec` that need to know SGLang; the core finds them by entry point."""
