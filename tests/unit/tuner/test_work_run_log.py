"""A run's output: bounded, and readable whatever it holds."""

import os

import pytest

from tuner.work import run_log
from tuner.work.run_log import RunLog, readable


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain\n", "plain\n"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x \x1b]8;;http://a\x1b\\link", "red x link"),
        (b"a\x00b\x07c", "a\ufffdb\ufffdc"),
        (b" 1%\r 2%\r\nend\r", " 1%\n 2%\nend\n"),
        (b"\xff\xfe caf\xc3\xa9 \xc3", "\ufffd\ufffd caf\xe9 \ufffd"),
        (b"\ttab stays", "\ttab stays"),
    ],
)
def test_dirty_text(raw, text):
    assert readable(raw) == text


@pytest.fixture
def log(tmp_path):
    made = RunLog(tmp_path / "log")
    yield made
    made.close()
    made.close()


def test_a_short_log_is_its_tail(log):
    os.write(log.fileno(), b"short")
    assert log.head_and_tail() == ("", "short")


def test_a_long_log_keeps_both_ends(log):
    os.write(log.fileno(), b"H" + b"x" * 200_000 + b"T")
    head, tail = log.head_and_tail()
    assert (head[0], tail[-1], len(head), len(tail)) == ("H", "T", 65536, 65536)


def test_head_and_tail_never_overlap(log):
    os.write(log.fileno(), b"H" + b"x" * 65536)
    head, tail = log.head_and_tail()
    assert (head, len(tail)) == ("H", 65536)


def test_a_log_that_grows_without_end_loses_its_middle(log, monkeypatch):
    monkeypatch.setattr(run_log, "LARGEST_BYTES", 300_000)
    for number in range(10):
        os.write(log.fileno(), b"start" + b"%d" % number * 100_000 + b"|end %d\n" % number)
        log.bound()
        assert os.fstat(log.fileno()).st_size < 400_000
    head, tail = log.head_and_tail()
    assert head.startswith("start0")
    assert tail.endswith("|end 9\n")
    assert b"bytes of output left out" in os.pread(log.fileno(), 400_000, 0)
