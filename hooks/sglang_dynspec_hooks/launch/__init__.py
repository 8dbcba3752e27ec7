"""
What happens in the launcher, before a model loads: who is enabled, how, and what is refused.
"""
