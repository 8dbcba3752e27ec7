"""The only code of this project that knows SGLang."""
