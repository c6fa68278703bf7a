"""The JSON documents of the commands, field by field: what ``--json`` prints and the Python door returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner import longer_documents as rows


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a document. ``type`` is JSON's word for it; ``meaning`` names the unit and when it is null."""

    name: str
    type: str
    meaning: str


def _fields(*rows: tuple[str, str, str]) -> tuple[Field, ...]:
    return tuple(Field(name=name, type=kind, meaning=meaning) for name, kind, meaning in rows)


TRIAL = _fields(
    ("number", "integer", "0 is the baseline; contiguous within a study."),
    ("outcome", "text", "One of the outcomes above; null while it runs."),
    ("cause", "text", "One of the causes above; null when the outcome says it all."),
    ("config", "object", "Every knob with its value, and the derived `accumulation_steps`."),
    ("throughput", "number", "In `throughput_unit`: the confirmation's mean when `confirmed`, else of the search runs; "
     "an upper bound when `pruned`; null when nothing was measured."),
    ("throughput_unit", "text", "`tokens_per_second` or `samples_per_second`; padding never counts."),
    ("throughput_interval", "[low, high]", "95 % interval, run-to-run spread included; null without one."),
    ("peak_memory_bytes", "integer", "What the device must have free for this configuration, on the worst-case batch."),
    ("predicted_peak_memory_bytes", "integer", "Predicted before the run; null when nothing predicted it."),
    ("seconds", "number", "Wall time of all its runs."),
    ("confirmed", "boolean", "Whether the longer, interleaved runs of the confirmation measured it."),
)  # fmt: skip
"""A trial, wherever one stands in a document."""

RESULT = _fields(
    ("study", "text", "Its name."),
    ("status", "text", "`queued`, `running`, `paused`, `finished`, `failed` or `cancelled`."),
    ("stop_reason", "text", "Why it ended, for people; null while it has not."),
    ("objective", "text", "The objective's kind."),
    ("device", "text", "The device its measurements are from; null before the first."),
    ("global_batch_size", "integer", "Samples per optimizer step; null when the spec gives tokens."),
    ("global_batch_tokens", "integer", "Real tokens per optimizer step; null when the spec gives samples."),
    ("memory_limit_bytes", "integer", "The limit on this device; null before the first run."),
    ("counts", "object", "Number of trials by outcome."),
    ("seconds", "number", "Wall time spent on the study, over all sessions."),
    ("baseline", "trial", "Trial 0; null before it has ended."),
    ("best", "trial", "The fastest confirmed configuration, never one slower than the baseline; null without one."),
    ("front", "list of trials", "Feasible trials that no other beats in both throughput and peak memory."),
    ("speedup_over_baseline", "number", "The best's throughput over the baseline's; null without both."),
    ("speedup_over_baseline_interval", "[low, high]", "95 % interval of that ratio; one that holds 1 is a tie."),
    ("speedup_reason", "text", "Why no speed-up is stated; null when one is."),
    ("headroom_bytes", "integer", "What the best leaves of the limit; null without both."),
    (
        "knee",
        "integer",
        "Number of the front's trial farthest from the line between its ends; its fastest where the "
        "front has one or two points; null without a front.",
    ),
    ("ties", "list of integers", "Trials that may be as fast as the best: their intervals overlap."),
    ("demoted", "list of objects", "`number` and `reason` of trials that a longer run has thrown out."),
    ("fits_without_margin", "list of trials", "Over the limit, inside the device: they fit without the headroom."),
    ("refused", "list of objects", "`knob`, `value` and `reason` of choices refused before any trial."),
    ("between_run_spread", "number", "Relative standard deviation between runs alike; null before it is known."),
    (
        "search_level",
        "number",
        "Factor that brought throughputs of unconfirmed trials to the confirmation's level; 1 before.",
    ),
    (
        "explanation",
        "list of objects",
        "Why the best is faster than the baseline, change by change, in order: the fields of a step below. Empty where "
        "the baseline is the best; null without both.",
    ),
    ("notices", "list of text", "What a person should know beside the numbers."),
)
"""``run`` and ``show``."""

STEP = _fields(
    ("knobs", "list of objects", "`knob`, `from` and `to`; several only where `source` is `together`."),
    ("gain", "number", "Throughput after over before; all gains multiply to `speedup_over_baseline`."),
    ("gain_interval", "[low, high]", "95 % interval of it."),
    ("memory_bytes", "integer", "What it added to the peak, negative where it saved; null where that is not known."),
    ("source", "text", "`measured`: between two trials that differ in this knob alone. `together`: no trial tells "
     "these knobs apart. `modelled`: measured together, split by the cost model."),
    ("trials", "list of integers", "The two measured trials it lies between."),
)  # fmt: skip
"""One change of the explanation."""

FRONT = _fields(("study", "text", "Its name."), ("trials", "list of trials", "The front."))
"""``front``."""

EXPORT = _fields(
    ("study", "text", "Its name."),
    ("trial", "integer", "Number of the exported trial; null for a table."),
    ("format", "text", "As `--to` said."),
    ("target", "text", "Library and versions the files are made for."),
    ("files", "object", "Text by file name."),
    ("carried", "object", "By knob, where its value stands."),
    ("not_carried", "list of objects", "`knob`, `value`, `reason` and lines of `code` of what the files cannot hold."),
    ("environment", "object", "Variables to set before the job starts."),
    ("notes", "list of text", "What a person should know beside the files."),
    ("written", "list of text", "Paths written; empty without `--output`."),
    (
        "diff",
        "object",
        "`keys` (`key`, `yours`, `exported`, `state`) and `problems` (`key`, `reason`); null without `--diff`.",
    ),
)
"""``export``."""

INIT = _fields(
    ("study", "text", "Its name in the spec."),
    ("format", "text", "What the files were read as."),
    ("files", "list of text", "What was read."),
    ("spec", "text", "The spec as YAML."),
    ("fill_in", "list of objects", "`where` in the spec and `what` to write there; a run refuses it until then."),
    ("baseline", "object", "Every knob the files set."),
    ("uncertain", "object", "By knob, why its value is only the likeliest reading."),
    ("global_batch_size", "integer", "Samples per optimizer step over all ranks; null when it cannot be known."),
    ("world_size", "integer", "Ranks of the job; null when no file says it."),
    ("problems", "list of objects", "`file`, `line`, `key` and `reason` of what is wrong in the files."),
    ("notes", "list of text", "What a person should know beside the spec."),
    ("left", "list of text", "Keys that a study does not need."),
    ("written", "list of text", "Paths written; empty without `--output`."),
)
"""``init``."""

LOOKUP = _fields(
    ("query", "object", "What was asked for; null where it was left open."),
    ("answer", "object", "The nearest confirmed configuration, with the fields below; null where nothing comes near."),
    ("others", "list of objects", "`study`, `trial` and `differences` of the next ones."),
)
"""``lookup``."""

ANSWER = _fields(
    ("study", "text", "Where it was found."),
    ("trial", "integer", "Its number there."),
    ("config", "object", "Every knob, with `accumulation_steps` for the batch and ranks that were asked for."),
    ("exact", "boolean", "Whether everything that was asked for is what was measured."),
    ("differences", "list of text", "What is not, the weightiest first."),
    ("stale", "list of text", "What has changed on this machine since; null where that cannot be judged from here."),
    ("throughput", "number", "The confirmation's, on the device that was asked for; null when measured on another."),
    ("throughput_unit", "text", "As above."),
    ("throughput_interval", "[low, high]", "95 % interval; null without one."),
    ("peak_memory_bytes", "integer", "What it needs, on the rows it was measured with."),
    ("device", "text", "Where it was measured."),
    ("memory_limit_bytes", "integer", "What the study allowed."),
    ("found_under_cap", "boolean", "Whether that was a memory cap on a larger card."),
    ("global_batch_size", "integer", "Samples per optimizer step; null where the study gives tokens."),
    ("world_size", "integer", "Ranks it is for."),
    ("confirmed_at", "text", "When the newest confirmation run started; null when that is not known."),
    ("versions", "object", "Software it was measured with."),
    ("renew", "text", "The command that measures it again."),
)
"""The answer of ``lookup``; ``tuner.best_config`` returns the same."""

DIAGNOSIS = _fields(
    ("study", "text", "Its name."),
    ("counts", "object", "Number of checks by verdict."),
    ("checks", "list of objects", "The seven mistakes, in order; the fields below."),
)
"""``doctor``."""

CHECK = _fields(
    ("name", "text", "`batch_and_memory`, `precision_and_memory_format`, `fragmentation`, `parallelism`, "
     "`data_loading`, `accumulation`, `profiling`."),
    ("mistake", "integer", "Its number in the README's list."),
    ("title", "text", "For people."),
    ("verdict", "text", "`fine`, `improve`, `broken`, `not_measured` or `not_comparable`: that of the worst finding."),
    ("summary", "text", "The statement of the finding that decided."),
    ("evidence", "list of objects", "One a question; the fields of a finding below."),
    ("advice", "list of objects", "What to change; the fields below."),
)  # fmt: skip
"""One check."""

EVIDENCE = _fields(
    ("question", "text", "Unique within the check."),
    ("verdict", "text", "As above."),
    ("statement", "text", "The answer, with the numbers that matter."),
    ("figures", "list of objects", "`name`, `of` (what it belongs to), `value`, `unit`, `interval` (95 %, or null)."),
    ("trials", "list of integers", "Numbers of the trials it rests on."),
    ("runs", "list of text", "Ids of the runs it rests on."),
    ("measured_by", "text", "The command or key that would answer it; null unless `not_measured`."),
)
"""One finding of a check."""

ADVICE = _fields(
    ("change", "text", "What to do."),
    ("expected", "text", "What it is expected to gain, and on what ground."),
    ("check", "text", "How to see that it worked."),
    ("knobs", "object", "The knob values it comes to; empty where it is none of ours."),
    ("gain", "number", "Throughput after over before; null where it was not measured and does not follow."),
    ("gain_interval", "[low, high]", "95 % interval of it; null without one."),
    ("measured", "boolean", "Whether trials measured the gain; else it is a bound that follows from a measurement."),
)
"""One change that a check advises."""

REPORT = _fields(
    ("study", "text", "Its name."),
    ("written", "text", "Path of the HTML file."),
    ("bytes", "integer", "Its size."),
)
"""``report``."""

IN_TRAINER = _fields(
    ("study", "text", "Its name."),
    ("trial", "integer", "The winner's number."),
    ("trainer", "text", "As `--with` said."),
    ("steps", "integer", "Optimizer steps that were timed, after two on worst-case batches."),
    ("samples_per_step", "integer", "The global batch."),
    ("micro_batches_per_step", "list of integers", "Every number of micro-batches that an optimizer step had."),
    ("as_exported", "boolean", "Whether that is the exported accumulation in every step."),
    ("throughput", "number", "In the trainer, in `throughput_unit`, over the wall time of the timed steps."),
    ("throughput_unit", "text", "As above."),
    ("samples_per_second", "number", "The same in samples."),
    ("study_throughput", "number", "The study's number for this trial."),
    ("study_interval", "[low, high]", "95 % interval of it; null without one."),
    ("own_loop_throughput", "number", "The study's own loop, measured again just before and just after; their mean."),
    ("own_loop_moved", "number", "By which share these two differ: what the machine did meanwhile."),
    ("of_study", "number", "The trainer's throughput over the study's."),
    ("of_own_loop", "number", "The trainer's throughput over that of the study's own loop."),
    ("seconds", "object", "`wall`, and of it `compute` (forward, backward), `optimizer`, `data` (waiting for batches) "
     "and `trainer`: the rest, the trainer's own work."),
    ("overhead_share", "number", "The trainer's own work over the wall time."),
    ("peak_memory_bytes", "integer", "In the trainer, on worst-case batches; null when it was not read."),
    ("study_peak_memory_bytes", "integer", "The study's."),
    ("in_code", "list of objects", "`knob`, `value` and `reason` of what no file holds: in effect as the notes say."),
    ("trainer_says", "object", "The trainer's own figures, its warm-up included."),
    ("verdict", "text", "In one sentence."),
)  # fmt: skip
"""``confirm --with``."""

LIST = _fields(
    ("studies", "list of objects", "One a study, newest first; the fields below."),
)
"""``list``."""

LISTED = tuple(
    field
    for field in RESULT
    if field.name
    in ("study", "status", "stop_reason", "objective", "device", "counts", "seconds", "best", "speedup_over_baseline")
) + _fields(
    ("priority", "integer", "Higher is served first."),
    ("workers", "integer", "Processes that work on it now."),
)
"""One study of the list: some of the result's fields."""

ESTIMATE = _fields(
    ("study", "text", "Its name."),
    ("device", "text", "The device the limit is of."),
    ("memory_limit_bytes", "integer", "What a configuration may need at most."),
    ("configurations", "integer", "Size of the space."),
    ("counts", "object", "How many `fits`, are `doubtful`, are `misfits` or `unknown`."),
    ("plan", "object", "At most so many `trials` and `runs` (further windows and the confirmation included), and the "
     "`seconds` they should take."),
    ("estimates", "list of objects", "`config`, `verdict`, `predicted_peak_memory_bytes` with `predicted_interval` "
     "(95 %), `categories` (bytes at the peak), `operator_at_peak` and `note`; the baseline first."),
)  # fmt: skip
"""``estimate``."""

DEVICES = _fields(
    ("devices", "list of objects", "What can be trained on, the CPU last; the fields below."),
)
"""``devices``."""

DEVICE = _fields(
    ("kind", "text", "`cuda` or `cpu`."),
    ("uuid", "text", "The device's own name in every listing; empty for the CPU."),
    ("name", "text", "The model."),
    ("total_memory_bytes", "integer", "All of it; on a CPU the smaller of RAM and control-group limit. Null: unknown."),
    ("visible", "boolean", "False for a device that `CUDA_VISIBLE_DEVICES` hides."),
    ("reason", "text", "Why figures are missing or the device cannot be used; null when all is well."),
)
"""One device; further fields depend on its kind."""

STEERED = _fields(
    ("study", "text", "Its name."),
    ("status", "text", "As above."),
    ("stop_reason", "text", "Why it stopped, or why no worker has taken it yet; null while there is nothing to say."),
    ("priority", "integer", "Higher is served first."),
    ("needs", "object", "What a worker must have: `device_kind`, `memory_bytes`; empty for any."),
)
"""``submit``, ``pause``, ``resume``, ``cancel``."""

DELETED = _fields(
    ("study", "text", "Its name."),
    ("trials", "integer", "Trials that were removed with it."),
)
"""``delete``."""

WORKERS = _fields(("workers", "list of objects", "One a worker, by the time it started; the fields below."))
"""``workers``."""

WORKER = _fields(
    ("worker", "text", "Its id; a worker that starts again has another."),
    ("host", "text", "Its machine."),
    ("pid", "integer", "Its process number there."),
    ("device", "text", "The device it owns."),
    ("device_uuid", "text", "Empty for a CPU."),
    ("threads", "integer", "CPU threads a run of it computes with."),
    ("status", "text", "`idle`, `working`, `draining`, `quarantined`, `gone`, or `lost`: silent for longer than its "
     "lease, and not yet declared lost by another worker."),
    ("study", "text", "What it works on; null while it is idle."),
    ("silent_seconds", "number", "Since its last heartbeat, by the database's clock."),
    ("reason", "text", "Why it is quarantined or gone; null while there is nothing to say."),
)  # fmt: skip
"""One worker."""

ERROR = _fields(
    ("error.message", "text", "The first line of what went wrong."),
    ("error.exit_status", "integer", "The exit status."),
    ("error.problems", "list of objects", "Of a spec: `where`, `reason`, `fix` and `line` of each problem."),
)
"""What ``--json`` prints instead when the command could not answer."""


VERIFIED, SOAKED, PROFILED = _fields(*rows.VERIFIED), _fields(*rows.SOAKED), _fields(*rows.PROFILED)
"""``verify``, ``soak`` and ``profile``."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One document: its title, the commands that print it, its fields."""

    title: str
    commands: str
    fields: tuple[Field, ...]


LAYOUTS: tuple[Layout, ...] = (
    Layout(title="Result", commands="`tuner run`, `tuner show`, `tuner confirm`", fields=RESULT),
    Layout(title="Trial", commands="inside the others", fields=TRIAL),
    Layout(title="Step", commands="inside `explanation`", fields=STEP),
    Layout(title="Front", commands="`tuner front`", fields=FRONT),
    Layout(title="Estimate", commands="`tuner estimate`", fields=ESTIMATE),
    Layout(title="Export", commands="`tuner export`", fields=EXPORT),
    Layout(title="Init", commands="`tuner init`", fields=INIT),
    Layout(title="Lookup", commands="`tuner lookup`", fields=LOOKUP),
    Layout(title="Answer", commands="inside `tuner lookup`", fields=ANSWER),
    Layout(title="Diagnosis", commands="`tuner doctor`", fields=DIAGNOSIS),
    Layout(title="Check", commands="inside `checks`", fields=CHECK),
    Layout(title="Finding", commands="inside `evidence`", fields=EVIDENCE),
    Layout(title="Advice", commands="inside `advice`", fields=ADVICE),
    Layout(title="Report", commands="`tuner report`", fields=REPORT),
    Layout(title="Verification", commands="`tuner verify`", fields=VERIFIED),
    Layout(title="Soak", commands="`tuner soak`", fields=SOAKED),
    Layout(title="Profile", commands="`tuner profile`", fields=PROFILED),
    Layout(title="In the trainer", commands="`tuner confirm --with`", fields=IN_TRAINER),
    Layout(title="List", commands="`tuner list`", fields=LIST),
    Layout(title="Study", commands="inside `studies`", fields=LISTED),
    Layout(title="Devices", commands="`tuner devices`", fields=DEVICES),
    Layout(title="Device", commands="inside `devices`", fields=DEVICE),
    Layout(title="Steered", commands="`tuner submit`, `pause`, `resume`, `cancel`", fields=STEERED),
    Layout(title="Deleted", commands="`tuner delete`", fields=DELETED),
    Layout(title="Workers", commands="`tuner workers`", fields=WORKERS),
    Layout(title="Worker", commands="inside `workers`", fields=WORKER),
    Layout(title="Error", commands="every command that could not answer", fields=ERROR),
)
"""All documents, in the order of the reference."""


def missing(document: Mapping[str, Any], fields: tuple[Field, ...]) -> list[str]:
    """The fields a document lacks. A null value is not missing."""
    return [field.name for field in fields if field.name not in document]
