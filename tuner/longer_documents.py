"""The rows of the documents of ``verify``, ``soak`` and ``profile``: name, JSON's word for the type, meaning."""

from __future__ import annotations

Rows = tuple[tuple[str, str, str], ...]

VERIFIED: Rows = (
    ("study", "text", "Its name."),
    ("trial", "integer", "The winner's number."),
    ("run", "text", "The stored run's id."),
    ("verdict", "text", "`fine`, `improve`, `broken`, `not_measured` or `not_comparable`."),
    ("faults", "list of objects", "`name`, `broken` and `text`, worst first: `mean_of_means`, `units`, `accumulation`, "
     "`scheduler_per_micro_batch`, `loss_curve`, `without_gradient`, `lost_last_window`."),
    ("not_comparable", "text", "Why the gradient depends on the micro-batch by the model's design; null where it "
     "must not."),
    ("gradient", "object", "The comparison nearest to its bound: `precision`, both splits, `distance` (relative L2), "
     "`bound`, `scale` (distance of the reference from fp32) and the farthest `parameters`; null without one."),
    ("gradients", "list of objects", "All comparisons: in fp32 and in the winner's precision."),
    ("loss_curve", "object", "`examined` and `reference` losses by update, `band` (relative) and `leaves_at` (index of "
     "the update from which on they differ; null where they stay together); null without one."),
    ("without_gradient", "list of text", "Trainable parameters that no gradient reaches."),
    ("scheduler_steps_per_update", "number", "Learning-rate changes per optimizer step; null without a schedule."),
    ("lost_update_shares", "object", "By precision: share of the elements whose update rounds to nothing."),
    ("samples", "integer", "Of one pass over the data."),
    ("lost_samples", "integer", "Behind the last whole global batch."),
    ("notes", "list of text", "What was not compared, and why."),
)  # fmt: skip
"""``verify``."""

SOAKED: Rows = (
    ("study", "text", "Its name."),
    ("trial", "integer", "The winner's number."),
    ("run", "text", "The stored run's id."),
    ("seconds", "number", "Of the plain run."),
    ("growth", "text", "`flat`, `saturates`, `grows`, `steps` (never extrapolated) or `cannot_tell`."),
    ("growth_bytes_per_hour", "number", "Of what the allocator holds (CPU: resident); null where it has no rate."),
    ("growth_interval", "[low, high]", "95 % of it."),
    ("growth_reason", "text", "One sentence."),
    ("live_growth", "text", "The same of what the program keeps; null where the device does not say."),
    ("live_growth_interval", "[low, high]", "95 %, bytes an hour; null without a rate."),
    ("leak", "boolean", "Whether live memory is what grows: no allocator setting helps."),
    ("leak_source", "text", "What keeps the tensors; null where there is no leak or nobody knows."),
    ("peak_memory_bytes", "integer", "The largest seen (CPU: above the start, at the readings)."),
    ("allocated_bytes", "integer", "In use at the end."),
    ("reserved_bytes", "integer", "Held at the end."),
    ("largest_free_block_bytes", "integer", "The smallest seen; null where the device does not say."),
    ("allocation_retries", "integer", "Allocations that first had to give cached blocks back."),
    ("evaluation", "boolean", "Whether there were evaluation breaks."),
    ("updates", "integer", "Optimizer steps."),
    ("units_per_second", "number", "Of training, evaluation breaks left out; no measurement."),
    ("tensors_at_start", "integer", "Tensors that Python saw after warm-up."),
    ("tensors_at_end", "integer", "And at the end."),
    ("remedies", "list of objects", "`name`, `knobs`, `growth_bytes_per_hour`, `growth_interval`, `peak_memory_bytes`, "
     "`slowdown` (share) and `helps`, in the order tried."),
    ("series", "list of objects", "Readings: `seconds`, `updates` and the figures above in bytes."),
    ("recommendation", "text", "What goes into the export; null for nothing."),
)  # fmt: skip
"""``soak``."""

PROFILED: Rows = (
    ("study", "text", "Its name."),
    ("trial", "integer", "The profiled trial."),
    ("run", "text", "The stored run's id."),
    ("tool", "text", "`torch`, `memory`, `nsys` or `ncu`."),
    ("step_seconds", "number", "An optimizer step under the tool (of at most 4 micro-steps); no measurement."),
    ("phases", "object", "Seconds in `data`, `forward`, `backward` and `optimizer`."),
    ("shares", "object", "Shares of the step: `attention`, `matmul`, `elementwise`, `copies`, `communication`, `idle`, "
     "`other`; they add up to 1. Empty for tools without times."),
    ("operators", "list of objects", "`name`, `category`, `seconds` (own), `share` and `calls`, dearest first."),
    ("findings", "list of objects", "`kind` (`hidden_synchronisation`, `wrong_device`, `slow_path`, `copy_bound`), "
     "`where`, `text`, `share` and `advice`."),
    ("synchronisations", "list of objects", "Every wait seen: `why`, `line`, `module`, `per_micro_step`."),
    ("memory_by_category", "object", "Bytes at the peak of a worst-case step."),
    ("memory_by_module", "object", "The same by the module that made them."),
    ("operator_at_peak", "text", "What had just been computed; null where it was not looked at."),
    ("allocator", "object", "Of `memory` on CUDA: the allocator's segments and the lines that hold memory; else null."),
    ("folder", "text", "Where files are kept."),
    ("files", "list of objects", "`path`, `bytes` and how to open it (`open_with`)."),
    ("notes", "list of text", "What the profile does not hold."),
)  # fmt: skip
"""``profile``."""
