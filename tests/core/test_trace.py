import errno
import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sglang_dynspec import ConfigError, Outcome, Plan, TraceError
from sglang_dynspec.trace import (
    TraceHeader,
    TraceRound,
    TraceWriter,
    check_trace_path,
    iter_rounds,
    read_header,
    read_trace,
)
from sglang_dynspec.trace import writer as writer_module
from tests.core.conftest import HEADER


class TestRoundTrip:
    def test_header_and_rounds(self, path, open_writer, put):
        times = iter([100.0, 100.25, 101.5])
        writer = open_writer(clock=lambda: next(times))
        put(writer, 0, period=0.02)
        put(writer, 1, depth=0, planned=3, accepted=())
        writer.close()

        trace = read_trace(path)

        assert trace.header == HEADER
        assert trace.rounds[0] == TraceRound(
            round=0,
            t=0.25,
            batch_size=2,
            padded_batch_size=2,
            running=2,
            waiting=7,
            seq_len_sum=200,
            seq_len_max=100,
            kv_free=0.123457,
            depth=3,
            planned=3,
            reason="row 1-: 3",
            accepted=(3, 0),
            tokens=5,
            period=0.02,
            upkeep_window=4,
        )
        assert (trace.rounds[1].t, trace.rounds[1].depth, trace.rounds[1].planned) == (1.5, 0, 3)
        assert (trace.rounds[1].accepted, trace.rounds[1].period) == ((), None)

    def test_what_is_there_now_and_then(self, path, open_writer, observe):
        writer = open_writer()
        plan = Plan(depth=3, probe=True, predicted=(10.0, 12.5), confidence=0.75, blocked="dwell")
        ran = {"round": 0, "planned": 3, "batch_size": 1, "accepted": (), "tokens": 1}
        writer.write(observe(), plan, Outcome(depth=3, **ran))
        plain = Outcome(depth=0, upkeep=True, guesses=4, right_guesses=3, **ran)
        writer.write(observe(upkeep_window=0), Plan(depth=0), plain)
        exact = Outcome(depth=0, seq_lens=(17, 20), **ran)
        writer.write(observe(plain_requests=2), Plan(depth=0), exact)
        writer.close()
        first, second, third = read_trace(path).rounds
        assert (first.probe, first.predicted) == (True, (10.0, 12.5))
        assert (first.confidence, first.blocked) == (0.75, "dwell")
        assert (first.upkeep, first.guesses, first.right_guesses) == (False, 0, 0)
        assert (second.probe, second.predicted, second.confidence) == (False, (), None)
        assert (second.upkeep, second.guesses, second.right_guesses) == (True, 4, 3)
        assert (second.plain_requests, second.upkeep_window, second.seq_lens) == (0, 0, ())
        assert (third.plain_requests, third.upkeep_window) == (2, 4)
        assert third.seq_lens == (17, 20)

    def test_a_trace_without_them_stays_readable(self, path, open_writer, observe):
        writer = open_writer()
        ran = Outcome(round=0, depth=0, planned=0, batch_size=1, accepted=(), tokens=1)
        writer.write(observe(upkeep_window=0), Plan(depth=0), ran)
        writer.close()
        # Defaults are not written, so this is also what an older version wrote.
        _, line = path.read_text().splitlines()
        more = {"probe", "blocked", "plain_requests", "upkeep_window", "seq_lens", "upkeep"}
        assert not (more | {"guesses", "right_guesses"}) & set(json.loads(line))
        (only,) = read_trace(path).rounds
        assert (only.probe, only.predicted, only.blocked, only.guesses) == (False, (), "", 0)

    def test_an_older_header_is_of_a_server_as_it_is_by_default(self, path):
        path.write_text('{"dynspec_trace": 1, "depths": [0, 3]}\n')
        header = read_header(path)
        assert (header.depths, header.overlap, header.exact_sampling) == ((0, 3), True, True)
        assert (header.max_running_requests, header.seed) == (None, 0)

    def test_the_file_is_json_lines(self, path, open_writer, put):
        writer = open_writer()
        put(writer)
        writer.close()
        header, first = path.read_text().splitlines()
        assert json.loads(header)["dynspec_trace"] == 1
        assert json.loads(first)["accepted"] == [3, 0]

    def test_a_file_that_exists_is_replaced(self, path, open_writer):
        path.write_text("old\n" * 100)
        open_writer().close()
        assert read_trace(path).rounds == []

    def test_a_wall_clock_time_on_the_scale_of_the_trace(self, path, open_writer):
        open_writer().close()
        trace = read_trace(path)
        assert trace.seconds(1767323045.0 + 12.5) == 12.5

    def test_the_header_says_when(self):
        assert TraceHeader().started.endswith("+00:00")


class TestWriting:
    def test_nothing_is_written_before_it_is_due(self, path, open_writer, put):
        writer = open_writer()
        put(writer)
        assert path.read_bytes() == b""
        writer.flush()
        assert len(path.read_bytes().splitlines()) == 2

    def test_it_is_written_without_being_told(self, path, open_writer, put):
        writer = open_writer(flush_interval=0.01)
        put(writer)
        deadline = time.monotonic() + 10
        while len(path.read_bytes().splitlines()) < 2:
            assert time.monotonic() < deadline, "the flusher did not write"
            time.sleep(0.005)

    def test_closing_ends_the_thread_and_can_be_repeated(self, open_writer):
        writer = open_writer()
        assert "dynspec-trace" in {thread.name for thread in threading.enumerate()}
        writer.close()
        writer.close()
        assert "dynspec-trace" not in {thread.name for thread in threading.enumerate()}

    def test_no_round_is_lost_between_two_threads(self, path, open_writer, put):
        writer = open_writer(flush_interval=0.0005)
        for index in range(3000):
            put(writer, index)
        writer.close()
        assert [each.round for each in iter_rounds(path)] == list(range(3000))

    def test_what_a_policy_says_of_itself_spoils_no_trace(self, path, open_writer, observe):
        writer = open_writer()
        odd = (
            Plan(depth=3, predicted=("a", "b"), confidence=0.5),
            Plan(depth=3, predicted=(1.0, 2), confidence="sure"),
            Plan(depth=3, reason="half \ud800", blocked="caf\xe9"),
        )
        for index, plan in enumerate(odd):
            ran = Outcome(round=index, depth=3, planned=3, batch_size=1, accepted=(0,), tokens=1)
            writer.write(observe(1), plan, ran)
        writer.close()
        rounds = read_trace(path).rounds
        assert [each.predicted for each in rounds] == [(), (1.0, 2.0), ()]
        assert [each.confidence for each in rounds] == [0.5, None, None]
        assert (rounds[2].reason, rounds[2].blocked) == ("half ?", "caf\xe9")

    def test_a_trace_can_be_read_from_a_pipe(self, tmp_path, path, open_writer, put):
        writer = open_writer()
        for index in range(5):
            put(writer, index)
        writer.close()
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        feeder = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
        feeder.start()
        assert read_trace(pipe) == read_trace(path)
        feeder.join()

    def test_a_full_disk_is_told_at_the_next_write(self, open_writer, put):
        writer = open_writer(Path("/dev/full"))
        put(writer)
        with pytest.raises(OSError, match="No space left"):
            writer.flush()
        with pytest.raises(OSError, match="No space left"):
            put(writer)
        with pytest.raises(OSError, match="No space left"):
            writer.close()
        writer.close()

    def test_a_stuck_disk_does_not_fill_the_memory(self, open_writer, put, monkeypatch):
        monkeypatch.setattr(writer_module, "BACKLOG", 3)
        writer = open_writer()
        put(writer)
        put(writer)
        with pytest.raises(OSError, match="does not keep up") as caught:
            put(writer)
        assert caught.value.errno == errno.EAGAIN

    def test_closing_does_not_wait_for_a_stuck_disk(self, tmp_path, open_writer, put):
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        # Full from the start: the first write of the writer's thread blocks, and keeps its lock.
        filler = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while os.write(filler, b"x" * 512):
                pass
        os.close(filler)
        try:
            writer = open_writer(pipe, flush_interval=0.001)
            while not writer._write_lock.locked():
                put(writer)
            with pytest.raises(OSError, match="does not keep up"):
                writer.close(patience=0.05)
            assert writer._flusher.is_alive()
            writer.close()
        finally:
            os.close(reader)
        writer._flusher.join(10)
        assert not writer._flusher.is_alive()
        writer._file.close()

    def test_a_file_has_one_writer(self, path, open_writer, put):
        first = open_writer()
        put(first)
        first.flush()
        for attempt in (open_writer, lambda: check_trace_path(path)):
            with pytest.raises(ConfigError, match="found another server that is writing it"):
                attempt()
        first.close()
        assert len(read_trace(path).rounds) == 1
        open_writer().close()
        assert read_trace(path).rounds == []

    def test_a_device_may_be_shared(self, open_writer):
        open_writer(Path("/dev/null"))
        open_writer(Path("/dev/null"))

    def test_a_short_write_is_completed(self, path, open_writer, put):
        writer = open_writer()
        put(writer)
        whole = writer._file

        class Short:
            def write(self, data):
                return whole.write(data[:7])

        writer._file = Short()
        writer.flush()
        writer._file = whole
        assert len(read_trace(path).rounds) == 1

    def test_a_file_that_cannot_be_opened(self, path, monkeypatch):
        monkeypatch.setattr(
            Path, "open", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only"))
        )
        with pytest.raises(ConfigError, match="found OSError: Read-only"):
            TraceWriter(path, HEADER)


class TestReading:
    @pytest.fixture
    def data(self, path, open_writer, put):
        writer = open_writer()
        for index in range(3):
            put(writer, index)
        writer.close()
        return path.read_bytes()

    def test_a_cut_trace_reads_up_to_its_last_whole_line(self, path, data):
        lines = data.splitlines(keepends=True)
        before = len(b"".join(lines[:3]))
        for size in range(before, len(data) - 1):
            path.write_bytes(data[:size])
            # A line that only lacks its line break is whole.
            assert len(read_trace(path).rounds) == 2
        path.write_bytes(data[:-1])
        assert len(read_trace(path).rounds) == 3

    @pytest.mark.parametrize("damage", [b"", b"not JSON", b"[1]", b'{"round": 1}', b"\xff\xfe"])
    def test_damage_before_the_last_line_is_refused(self, path, data, damage):
        lines = data.splitlines()
        lines[2] = damage
        path.write_bytes(b"\n".join(lines) + b"\n")
        with pytest.raises(TraceError, match=f"something else in line 3 of {path}"):
            read_trace(path)

    def test_what_a_newer_minor_format_adds_is_ignored(self, path, data):
        header, first, *_ = data.splitlines()
        extended = [json.dumps(json.loads(line) | {"new": 1}) for line in (header, first)]
        path.write_text("\n".join(extended))
        trace = read_trace(path)
        assert trace.header == HEADER
        assert len(trace.rounds) == 1

    def test_a_newer_version_is_refused(self, path):
        path.write_text('{"dynspec_trace": 2, "dynspec": "9.0"}\n')
        with pytest.raises(TraceError, match=r"version 1 or older; found version 2 .* by 9.0"):
            read_trace(path)

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}\n', '{"dynspec_trace": "1"}'])
    def test_something_else_is_refused(self, path, text):
        path.write_text(text)
        with pytest.raises(TraceError, match="expected a trace"):
            read_header(path)

    def test_rounds_are_read_one_at_a_time(self, path, data):
        path.write_bytes(data)
        rounds = iter_rounds(path)
        assert next(rounds).round == 0
        path.write_bytes(data[:10])
        rounds.close()

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            read_trace(tmp_path / "none")
