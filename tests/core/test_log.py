"""One event, one line."""

import logging

import pytest

from sglang_dynspec.log import structured


class Unshowable:
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        (1.5, "1.5"),
        ("two words", "'two words'"),
        ("", "''"),
        ("two\nlines", "'two\\nlines'"),
        ("\x1b[31m", "'\\x1b[31m'"),
        ("%s", "%s"),
        (Unshowable(), "'(it cannot be shown)'"),
    ],
    ids=repr,
)
def test_a_value_stays_one_field_of_one_line(caplog, value, written):
    structured(logging.getLogger("theirs"), "ours").warning("noticed", value=value, more=2)
    assert caplog.messages == [f"noticed value={written} more=2"]


def test_a_traceback_goes_with_the_line_and_not_into_it(caplog):
    log = structured(None, "sglang_dynspec.test")
    try:
        {}["lost"]
    except KeyError:
        log.exception("failed", round=3)
    assert caplog.messages == ["failed round=3"]
    assert "KeyError: 'lost'" in caplog.text
    assert [record.filename for record in caplog.records] == ["test_log.py"]
