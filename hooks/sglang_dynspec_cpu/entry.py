"""
The plugin that makes SGLang's processes run the CPU engine.

Entry point ``dynspec_cpu`` of the group ``sglang.srt.plugins``. SGLang calls it in the launcher,
in every scheduler and in the detokenizer, of every server on a machine where this package is
installed. Unless ``SGLANG_DYNSPEC_CPU_ENGINE=1`` it returns at once, and nothing but the standard
library has been imported.
"""

import os

from sglang_dynspec_cpu.environment import SWITCH


def activate() -> None:
    """
    Install the CPU engine in this process if it is turned on.

    Raises:
        SystemExit: When this process cannot run it. SGLang swallows every other exception of a
            plugin and would go on without it.
    """
    if os.environ.get(SWITCH) != "1":
        return
    try:
        from sglang_dynspec_cpu.installation import install
        from sglang_dynspec_hooks.process import present_role

        install(present_role())
    except Exception as error:
        raise SystemExit(f"dynspec_cpu: {error or type(error).__name__}") from error
