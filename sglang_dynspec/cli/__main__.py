"""
``python -m sglang_dynspec.cli``, the same as ``dynspec``.
"""

from sglang_dynspec.cli import main

if __name__ == "__main__":
    main()
