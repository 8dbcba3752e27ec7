"""The ledger by value: what is owed, and which rows pay for it."""

import numpy as np
import torch

from sglang_dynspec_hooks.worker.ledger import Ledger

WIDTH, SLOTS, HIDDEN = 4, 6, 2


def plain_round(ledger, slots, *, base, length, mirrored=True):
    """Record a round whose token and hidden row of slot s are base + s."""
    slots_cpu = np.asarray(slots)
    tokens = torch.tensor([base + s for s in slots], dtype=torch.int32)
    hidden = tokens.float()[:, None].expand(-1, HIDDEN).contiguous()
    lengths = torch.full((len(slots),), length)
    ledger.enter(
        torch.tensor(slots),
        slots_cpu,
        tokens=tokens,
        hidden=hidden,
        lengths=lengths,
        lengths_cpu=lengths if mirrored else None,
    )


def ledger():
    return Ledger(width=WIDTH, slots=SLOTS, device="cpu", hidden=(HIDDEN, torch.float32))


def test_rows_come_oldest_first_and_padded():
    book = ledger()
    plain_round(book, [1, 2], base=10, length=5)
    plain_round(book, [1, 2, 3], base=20, length=6)
    slots = np.array([1, 3, 5])
    owed = book.owed(slots)
    assert owed.tolist() == [2, 1, 0]
    rows = book.rows(slots, owed)
    tokens = rows.tokens.view(3, WIDTH)
    assert tokens[0, :2].tolist() == [11, 21]
    assert tokens[1, :1].tolist() == [23]
    assert rows.hidden.view(3, WIDTH, HIDDEN)[0, :2, 0].tolist() == [11.0, 21.0]
    assert rows.slots.tolist() == [1, 1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]
    assert rows.positions.tolist() == [4, 5, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]
    assert rows.taken.tolist() == [2, 1, 1]
    assert rows.taken_cpu.tolist() == [2, 1, 1]
    assert rows.owing.tolist() == [1, 1, 0]


def test_the_ring_wraps():
    book = ledger()
    for step in range(7):
        plain_round(book, [2], base=100 * step, length=step)
        if step == 4:
            book.settle(np.array([2]))
    rows = book.rows(np.array([2]), book.owed(np.array([2])))
    assert rows.taken.tolist() == [2]
    assert rows.tokens[:2].tolist() == [502, 602]


def test_counts_stop_at_the_width():
    book = ledger()
    for step in range(WIDTH + 3):
        plain_round(book, [4], base=step, length=step)
    assert book.unwritten(np.array([4])).tolist() == [WIDTH]
    rows = book.rows(np.array([4]), book.owed(np.array([4])))
    assert rows.tokens.tolist() == [4 + step for step in range(3, WIDTH + 3)]


def test_a_request_that_left_without_finishing_is_not_pending():
    book = ledger()
    plain_round(book, [1, 2], base=0, length=1)
    plain_round(book, [1], base=0, length=2)
    assert book.pending() == 2  # slot 2 may still be the newest overlapped finish
    plain_round(book, [1], base=0, length=3)
    assert book.pending() == 1


def test_a_gap_is_counted_and_starts_over():
    book = ledger()
    plain_round(book, [1, 2], base=0, length=1)
    plain_round(book, [2], base=10, length=2)
    plain_round(book, [1, 2], base=20, length=3)
    assert book.gaps == 1
    assert book.owed(np.array([1, 2])).tolist() == [1, 3]
    assert book.unwritten(np.array([1, 2])).tolist() == [1, 3]


def test_lengths_are_those_after_the_last_plain_round():
    book = ledger()
    plain_round(book, [1], base=0, length=7)
    plain_round(book, [2, 3], base=0, length=8)
    device, host = book.lengths(torch.tensor([3, 1]), np.array([3, 1]))
    assert device.tolist() == [8, 7]
    assert host.tolist() == [8, 7]


def test_lengths_have_no_host_mirror_where_the_scheduler_keeps_none():
    book = ledger()
    plain_round(book, [1], base=0, length=7, mirrored=False)
    device, host = book.lengths(torch.tensor([1]), np.array([1]))
    assert (device.tolist(), host) == ([7], None)


def test_clear_and_settle_leave_nothing():
    book = ledger()
    plain_round(book, [1, 2, 3], base=0, length=1)
    book.settle(np.array([1]))
    assert book.pending() == 2
    book.clear()
    assert book.pending() == 0
    assert book.unwritten(np.array([1, 2, 3])).tolist() == [0, 0, 0]


def test_what_is_lacking_comes_oldest_first():
    book = ledger()
    for step in range(3):
        plain_round(book, [1, 2] if step else [2], base=10 * step, length=5 + step)
    place, slots, back = book.lacking(np.array([2, 5, 1]))
    assert slots.tolist() == [2, 2, 2, 1, 1]
    assert back.tolist() == [3, 2, 1, 2, 1]
    tokens, hidden = book.gather(torch.from_numpy(place))
    assert tokens.tolist() == [2, 12, 22, 11, 21]
    assert hidden[:, 0].tolist() == [2.0, 12.0, 22.0, 11.0, 21.0]
    assert (book.length_of(torch.tensor([2, 1])) - 1).tolist() == [6, 6]


def test_lacking_wraps_with_the_ring():
    book = ledger()
    for step in range(6):
        plain_round(book, [3], base=100 * step, length=step)
        if step == 2:
            book.mark_written(np.array([3]))
    place, _, back = book.lacking(np.array([3]))
    assert book.gather(torch.from_numpy(place))[0].tolist() == [303, 403, 503]
    assert back.tolist() == [3, 2, 1]


def test_written_rows_leave_the_newest_token_owed():
    book = ledger()
    plain_round(book, [1, 2], base=10, length=5)
    plain_round(book, [1, 2], base=20, length=6)
    book.mark_written(np.array([1]))
    slots = np.array([1, 2, 3])
    assert book.unwritten(slots).tolist() == [0, 2, 0]
    owed = book.owed(slots)
    assert owed.tolist() == [1, 2, 0]
    rows = book.rows(slots, owed)
    assert rows.tokens.view(3, WIDTH)[0, 0].item() == 21
    # Slot 1 lacks nothing: its draft input alone is out of date.
    assert book.pending() == 1
    book.settle(np.array([1, 2]))
    assert book.owed(slots).tolist() == [0, 0, 0]


def prefill(ledger, slots, *, tokens, length):
    lengths = torch.full((len(slots),), length)
    ledger.enter_prompts(
        torch.tensor(slots),
        np.asarray(slots),
        tokens=torch.tensor(tokens),
        hidden=torch.tensor(tokens, dtype=torch.float32)[:, None].expand(-1, HIDDEN),
        lengths=lengths,
        lengths_cpu=lengths,
    )


def test_a_prompt_that_was_written_owes_its_newest_token_alone():
    book = ledger()
    prefill(book, [1, 2], tokens=[31, 32], length=9)
    slots = np.array([1, 2, 3])
    assert (book.unwritten(slots).tolist(), book.owed(slots).tolist()) == ([0, 0, 0], [1, 1, 0])
    assert (book.pending(), book.gaps) == (0, 0)
    rows = book.rows(slots, book.owed(slots))
    assert rows.tokens.view(3, WIDTH)[:2, 0].tolist() == [31, 32]
    assert rows.hidden.view(3, WIDTH, -1)[:2, 0, 0].tolist() == [31.0, 32.0]
    assert rows.positions.view(3, WIDTH)[:2, 0].tolist() == [8, 8]


def test_plain_rounds_go_on_from_a_prompt():
    """In a ring of rounds in which the prompt is none; what the slot owed before is gone."""
    book = ledger()
    plain_round(book, [1, 2], base=10, length=5)
    plain_round(book, [1, 2], base=20, length=6)
    prefill(book, [2], tokens=[99], length=9)
    plain_round(book, [1, 2], base=30, length=10)
    slots = np.array([1, 2])
    assert book.unwritten(slots).tolist() == [3, 1]
    assert book.gaps == 0
    rows = book.rows(slots, book.owed(slots))
    assert rows.tokens.view(2, WIDTH)[0, :3].tolist() == [11, 21, 31]
    assert rows.tokens.view(2, WIDTH)[1, 0].item() == 32


def test_a_prefill_knows_what_came_before_it():
    book = ledger()
    prefill(book, [1], tokens=[31], length=9)
    before = book.prefills
    prefill(book, [2], tokens=[32], length=9)
    slots = np.array([1, 2, 3])
    assert book.prefilled_since(slots, before).tolist() == [False, True, False]
    assert book.prefilled_since(slots, 0).tolist() == [True, True, False]


def test_a_draft_that_reads_no_hidden_rows_has_none():
    book = Ledger(width=WIDTH, slots=SLOTS, device="cpu")
    plain_round(book, [1], base=10, length=5)
    tokens, hidden = book.gather(torch.from_numpy(book.lacking(np.array([1]))[0]))
    assert tokens.tolist() == [11]
    assert hidden is None
