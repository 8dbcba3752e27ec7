"""
The bridge between SGLang's scheduler and the core's round loop, and what it translates with.
"""
