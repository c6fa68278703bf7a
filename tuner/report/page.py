"""The page: the answer, the front, why it won, the seven checks, every trial. Pure: a view in, one text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tuner.answer.summary import summarise
from tuner.cli import words
from tuner.doctor import diagnose
from tuner.report.chart import Point, front_chart
from tuner.report.checks import checks
from tuner.report.html import Html, element, joined, table
from tuner.report.style import STYLE
from tuner.search.reasons import reason_of

if TYPE_CHECKING:
    from storage.records import TrialRecord
    from tuner.answer.summary import StudyView

GENERATOR = "tightfit"
"""Named in the page's head: such a file may be written over."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The browser itself refuses whatever would be loaded from elsewhere."""
MOST_TRIALS = 1000
Json = Mapping[str, Any]


def page(view: StudyView) -> str:
    """The whole file as text."""
    told = summarise(view.study, view.trials, view.runs, view.spec)
    diagnosis = diagnose(view)
    body = element(
        "body",
        _head(view, told),
        _cards(told),
        _answer(told),
        element("h2", "Throughput against peak memory"),
        front_chart(_points(view), view.study.memory_limit_bytes, _unit(view)),
        _front(told),
        _why(told),
        checks(diagnosis),
        _trials(view),
        _refused(told),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="generator", content=GENERATOR),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("title", f"{view.study.name}: Tightfit"),
        element("style", Html(STYLE)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _head(view: StudyView, told: Json) -> Html:
    batch = view.spec.global_batch_size or view.spec.global_batch_tokens
    kind = "samples" if view.spec.global_batch_size is not None else "tokens"
    parts = [
        str(told["objective"]),
        str(told["device"] or "no device yet"),
        f"global batch {batch} {kind}",
        f"memory limit {words.size(told['memory_limit_bytes'])}",
        f"{told['status']} after {words.duration(told['seconds'])}",
    ]
    reason = told["stop_reason"]
    return joined(
        [
            element("h1", view.study.name),
            element("p", " · ".join(parts), class_="soft"),
            element("p", str(reason), class_="soft") if reason else None,
            *(element("p", each) for each in told["notices"]),
        ]
    )


def _cards(told: Json) -> Html:
    speedup, best = told["speedup_over_baseline"], told["best"]
    bounds = words.interval(told["speedup_over_baseline_interval"], words.times)
    shown = [
        ("faster than the baseline", words.times(speedup) if speedup else words.NOTHING, bounds),
        ("confirmed throughput", _rate(best), _bounds(best)),
        ("peak memory", words.size(best["peak_memory_bytes"]) if best else words.NOTHING, ""),
        ("headroom", words.size(told["headroom_bytes"]), "of the limit"),
        ("trials", str(sum(told["counts"].values())), _counts(told["counts"])),
    ]
    made = [
        element("div", element("small", name), element("b", value), element("small", note), class_="card")
        for name, value, note in shown
    ]
    return element("div", *made, class_="cards")


def _counts(counts: Json) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())


def _answer(told: Json) -> Html:
    base, best = told["baseline"], told["best"]
    if best is None:
        return element("p", "No configuration has been confirmed.")
    before = {} if base is None else base["config"]
    rows = [
        (name, words.value(before.get(name)), words.value(value))
        for name, value in best["config"].items()
        if value != before.get(name) or name in ("micro_batch_size", "accumulation_steps")
    ]
    rows += [
        ("throughput", _rate(base), _rate(best)),
        ("95 % interval", _bounds(base), _bounds(best)),
        ("peak memory", words.size(base["peak_memory_bytes"]) if base else "", words.size(best["peak_memory_bytes"])),
    ]
    title = f"The winner: trial {best['number']}"
    return joined([element("h2", title), table(("", "baseline", "winner"), rows, right=("baseline", "winner"))])


def _front(told: Json) -> Html | None:
    base = told["baseline"]
    reference = {} if base is None else base["config"]
    rows = [
        (str(each["number"]), _rate(each), _bounds(each), words.size(each["peak_memory_bytes"]),
         "yes" if each["confirmed"] else "no", words.knobs(each["config"], reference) or "the baseline itself")
        for each in told["front"]
    ]  # fmt: skip
    head = ("trial", "throughput", "95 % interval", "peak memory", "confirmed", "unlike the baseline")
    right = ("trial", "throughput", "95 % interval", "peak memory")
    return joined([element("h2", "The front"), table(head, rows, right=right)]) if rows else None


def _why(told: Json) -> Html | None:
    steps = told["explanation"]
    if not steps:
        return None
    rows = [
        (words.times(each["gain"]), words.interval(each["gain_interval"], words.times), _added(each["memory_bytes"]),
         _known(each), ", ".join(_change(knob) for knob in each["knobs"]))
        for each in steps
    ]  # fmt: skip
    head = ("speed", "95 % interval", "memory", "known from", "change")
    title = element("h2", "Why it won, one change after the other")
    return joined([title, table(head, rows, right=("speed", "95 % interval", "memory"))])


def _change(knob: Json) -> str:
    return f"{knob['knob']} {words.value(knob['from'])} → {words.value(knob['to'])}"


def _known(step: Json) -> str:
    if step["source"] == "modelled":
        return "measured together, split by the cost model"
    return "trials {} and {}".format(*step["trials"])


def _added(count: int | None) -> str:
    return words.NOTHING if count is None else f"{'+' if count >= 0 else '−'}{words.size(abs(count))}"  # noqa: RUF001


def _trials(view: StudyView) -> Html:
    base = next((each.config for each in view.ended if each.number == 0), {})
    rows = [
        (str(each.number), _ended(each), words.rate(_measured(each), each.throughput_unit),
         words.size(each.peak_memory_bytes), words.knobs(each.config, base) or "the baseline itself")
        for each in view.ended[:MOST_TRIALS]
    ]  # fmt: skip
    head = ("trial", "outcome", "throughput", "peak memory", "unlike the baseline")
    shown = table(head, rows, right=("trial", "throughput", "peak memory"))
    more = len(view.ended) - MOST_TRIALS
    note = element("p", f"and {more} more", class_="soft") if more > 0 else None
    summary = element("summary", element("h3", f"All {len(view.ended)} trials"))
    return joined([element("h2", "Trials"), element("details", summary, shown, note)])


def _ended(trial: TrialRecord) -> str:
    return "completed" if trial.outcome == "completed" else reason_of(trial)


def _measured(trial: TrialRecord) -> float | None:
    return trial.throughput if trial.outcome in ("completed", "pruned") else None


def _refused(told: Json) -> Html | None:
    rows = [(each["knob"], each["value"] or "", each["reason"]) for each in told["refused"]]
    title = element("h2", "Refused before any trial")
    return joined([title, table(("knob", "value", "reason"), rows)]) if rows else None


def _points(view: StudyView) -> list[Point]:
    on_front = {each.id for each in view.front}
    return [
        Point(
            throughput=each.throughput,
            peak_bytes=each.peak_memory_bytes,
            on_front=each.id in on_front,
            mark="winner" if each.id == view.answer.best else "baseline" if each.number == 0 else "",
            text=f"trial {each.number}: {words.rate(each.throughput, each.throughput_unit)}, "
            f"{words.size(each.peak_memory_bytes)}; {words.knobs(each.config, {})}",
        )
        for each in view.ended
        if each.outcome == "completed" and each.throughput and each.peak_memory_bytes is not None
    ]


def _unit(view: StudyView) -> str:
    unit = next((each.throughput_unit for each in view.ended if each.throughput_unit), "units_per_second")
    return unit.replace("_", " ")


def _rate(trial: Json | None) -> str:
    return words.NOTHING if trial is None else words.rate(trial["throughput"], trial["throughput_unit"])


def _bounds(trial: Json | None) -> str:
    return "" if trial is None else words.interval(trial["throughput_interval"])
