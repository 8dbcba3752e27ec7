"""The processes of a replay, and the one that starts them."""

import os
import select
import signal
import subprocess
import sys

import pytest

#: Starts two processes, names them and waits to be ended.
POOL = """
import multiprocessing, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
from sglang_dynspec.replay.processes import workers
with workers(2) as run:
    list(run(abs, range(8)))
    print(*(each.pid for each in multiprocessing.active_children()), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_none_outlives_it(number):
    owner = subprocess.Popen(
        [sys.executable, "-c", POOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        handles = [os.pidfd_open(int(pid)) for pid in owner.stdout.readline().split()]
        owner.send_signal(number)
        owner.wait(10)
    assert len(handles) == 2
    left = [handle for handle in handles if not select.select([handle], [], [], 10)[0]]
    for handle in left:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    for handle in handles:
        os.close(handle)
    assert left == [], "they wait for work forever"
