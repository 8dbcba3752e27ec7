"""
Hides flashinfer, which is for GPUs.

SGLang imports it where it is installed and does without it where it is not. The import takes
seconds in each of an engine's processes, and a CPU runs nothing of it.
"""

raise ModuleNotFoundError("flashinfer is not there on the CPU engine")
