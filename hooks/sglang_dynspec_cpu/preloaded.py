"""
What the fork server of `fork_server` imports, and does, before it forks: import only there.

Its children take it for SGLang's launcher: they end when it does, and send it SIGQUIT when they
fail. So it ends with the launcher, and hands the signal on.
"""

import os
import signal
from types import FrameType

import sglang.srt.managers.detokenizer_manager
import sglang.srt.managers.scheduler
import sglang.srt.models.registry  # noqa: F401 - these for the processes forked later
from sglang.srt.utils import kill_itself_when_parent_died


def _hand_on(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    os.kill(os.getppid(), number)


kill_itself_when_parent_died()
signal.signal(signal.SIGQUIT, _hand_on)
