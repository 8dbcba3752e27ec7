"""Dynamic speculative decoding for SGLang."""
