"""Traces of rounds, of full disks and of processes that end."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sglang_dynspec.policies import Always
from sglang_dynspec.trace import read_trace
from sglang_dynspec.trace import writer as writer_module
from tests.core.conftest import NEVER

WRITING = """
import signal, sys
from pathlib import Path
from sglang_dynspec import Observation, Outcome, Plan
from sglang_dynspec.trace import TraceHeader, TraceWriter

def write(index):
    observation = Observation(batch_size=1, padded_batch_size=1, running=1, waiting=0,
                              seq_len_sum=1, seq_len_max=1, kv_free=1.0, depths=(0, 1),
                              depth=0, depth_age=0, round=index)
    writer.write(observation, Plan(depth=0), Outcome(round=index, depth=0, planned=0,
                                                     batch_size=1, accepted=(), tokens=1))

writer = TraceWriter(Path(sys.argv[1]), TraceHeader(), flush_interval=float(sys.argv[2]))
"""


class TestEndOfProcess:
    def test_an_exit_loses_nothing(self, path):
        code = f"{WRITING}\nfor index in range(50): write(index)\nsys.exit(3)"
        done = subprocess.run([sys.executable, "-c", code, path, str(NEVER)], check=False)
        assert done.returncode == 3
        assert len(read_trace(path).rounds) == 50

    def test_a_kill_loses_only_what_was_not_due(self, path):
        code = f"{WRITING}\nindex = 0\nwhile True: write(index); index += 1"
        with subprocess.Popen([sys.executable, "-c", code, path, "0.01"]) as process:
            deadline = time.monotonic() + 20
            while not path.exists() or path.stat().st_size < 100_000:
                assert time.monotonic() < deadline, "nothing was written"
                time.sleep(0.01)
            process.kill()
        indices = [each.round for each in read_trace(path).rounds]
        assert len(indices) > 100
        assert indices == list(range(len(indices)))


class TestRounds:
    def test_rounds_are_recorded(self, path, open_writer, cycle):
        run = cycle(Always(), trace=open_writer())
        run(2, accepted=(1, 3))
        run(4)
        run.rounds.close()
        run.rounds.close()
        rounds = read_trace(path).rounds
        assert [(each.round, each.depth, each.reason) for each in rounds] == [
            (0, 3, "always"),
            (1, 3, "always"),
        ]
        assert rounds[0].accepted == (1, 3)

    def test_a_full_disk_stops_the_trace_and_nothing_else(self, open_writer, cycle, caplog):
        writer = open_writer(Path("/dev/full"))
        run = cycle(Always(), trace=writer)
        run()
        with pytest.raises(OSError, match="No space"):
            writer.flush()
        for _ in range(5):
            assert run().depth == 3
        run.rounds.close()
        assert run.rounds.counters.trace_errors == 1
        assert run.rounds.counters.rounds == 6
        (message,) = caplog.messages
        assert message.startswith("trace_stopped error='OSError: [Errno 28]")

    def test_a_stuck_disk_stops_the_trace_and_nothing_else(
        self, tmp_path, open_writer, cycle, monkeypatch
    ):
        monkeypatch.setattr(writer_module, "BACKLOG", 1000)
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            writer = open_writer(pipe, flush_interval=0.001)
            run = cycle(Always(), trace=writer)
            deadline = time.monotonic() + 20
            while not run.rounds.counters.trace_errors:
                assert time.monotonic() < deadline, "the trace goes on"
                assert run(accepted=(1,)).depth == 3
        finally:
            os.close(reader)
        writer._flusher.join(10)
        writer._file.close()

    def test_a_full_disk_at_the_end(self, open_writer, cycle, caplog):
        run = cycle(Always(), trace=open_writer(Path("/dev/full")))
        run()
        run.rounds.close()
        assert run.rounds.counters.trace_errors == 1
        assert len(caplog.messages) == 1

    def test_a_value_json_cannot_hold(self, open_writer, cycle, caplog):
        run = cycle(Always(), trace=open_writer())
        run(waiting=object())
        run()
        assert run.rounds.counters.trace_errors == 1
        assert "TypeError" in caplog.messages[0]
