"""An exception as plain data."""

import json

from objectives.trial.failure import LONGEST_CHAIN, exception_chain, failure_fields, shortened


def caught(function):
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("nothing was raised")


def names(error):
    return [record.cls for record in exception_chain(error)]


def test_a_single_exception_with_its_bases():
    (record,) = exception_chain(FileNotFoundError(2, "No such file"))
    assert (record.cls, record.bases) == ("FileNotFoundError", ("OSError", "Exception", "BaseException"))
    assert record.text == "[Errno 2] No such file"


def test_cause_comes_before_context_and_each_once():
    def body():
        try:
            raise KeyError("context")
        except KeyError:
            raise RuntimeError("outer") from ValueError("cause")

    assert names(caught(body)) == ["RuntimeError", "ValueError", "KeyError"]


def test_what_from_none_hides_is_evidence():
    def body():
        try:
            raise MemoryError
        except MemoryError:
            raise RuntimeError("outer") from None

    assert names(caught(body)) == ["RuntimeError", "MemoryError"]


def test_an_error_while_cleaning_up_does_not_hide_the_first():
    def body():
        try:
            raise MemoryError("first")
        finally:
            [].pop()

    assert names(caught(body)) == ["IndexError", "MemoryError"]


def test_groups_are_opened_and_circles_end():
    group = BaseExceptionGroup("several", [ExceptionGroup("inner", [OSError()]), KeyboardInterrupt()])
    group.__context__ = ValueError("around")
    group.__context__.__cause__ = group
    assert names(group) == ["BaseExceptionGroup", "ValueError", "ExceptionGroup", "OSError", "KeyboardInterrupt"]


def test_a_chain_without_end_is_cut():
    error = first = RuntimeError("0")
    for number in range(1000):
        error.__cause__ = RuntimeError(str(number))
        error = error.__cause__
    assert len(exception_chain(first)) == LONGEST_CHAIN


def test_long_texts_keep_both_ends():
    text = shortened("a" * 100_000 + "b" * 100_000)
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert "characters left out" in text
    assert len(text) < 40_000


def test_fields_are_json_whatever_the_text_holds():
    fields = failure_fields(caught(lambda: int("\0\ud800")))
    assert "\\u0000" not in json.dumps(fields)
    assert fields["traceback"].startswith("Traceback (most recent call last)")
    assert fields["chain"][0]["cls"] == "ValueError"


def test_a_huge_traceback_keeps_its_end():
    def deeper():
        deeper()

    fields = failure_fields(caught(deeper))
    assert fields["traceback"].rstrip().endswith("maximum recursion depth exceeded")
    assert len(fields["traceback"]) <= 65_536
