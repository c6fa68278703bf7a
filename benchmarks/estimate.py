"""How true is the memory predicted before a run? Predicted against measured peaks, raw and after correcting runs.

    python -m benchmarks.estimate [FAMILY ...] [TABLE.jsonl ...]        (families: see MODELS)

Each configuration of a family is predicted by an ``estimate`` child and run by a real ``search`` child; a replay table
holds both already. Corrected: the rest of the family after the memory model has seen the largest configuration of each
precision.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bench import NO_DEADLINE, Bench, print_json, say
from examples.make_pictures import make_pictures
from objectives.config import TrainingConfig
from objectives.trial.protocol import WindowPlan
from tuner.search.memory_model import Observation, learn

TEXT = {"path": "stdlib", "tokenizer": {"train": {"vocab_size": 4096}}, "sequence_length": 128}
PICTURES = {"path": "pictures", "image_size": 96}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4,
              "num_attention_heads": 8},
    "gpt2": {"model_type": "gpt2", "n_embd": 512, "n_layer": 4, "n_head": 8},
    "qwen3": {"model_type": "qwen3", "hidden_size": 384, "intermediate_size": 1152, "num_hidden_layers": 6,
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64},
    "vit": {"model_type": "vit", "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6,
            "num_attention_heads": 6, "patch_size": 8},
    "convnext": {"model_type": "convnext", "depths": [2, 2, 4, 2], "hidden_sizes": [32, 64, 128, 256]},
}  # fmt: skip
_OPTIMIZERS = ({"optimizer": "adamw-foreach", "micro_batch_size": 1}, {"optimizer": "adamw-fused"})
_TEXT = ({"loss": "chunked"}, {"attention": "eager"}, {"micro_batch_size": 32})
OTHERS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "llama": (*_OPTIMIZERS, *_TEXT),
    "gpt2": ({"loss": "chunked"}, {"attention": "eager"}),
    "qwen3": ({"attention": "sdpa-math"},),
    "vit": ({"attention": "eager"},),
    "convnext": ({"memory_format": "channels_last"}, *_OPTIMIZERS),
}
"""Other knobs' values that are compared, beside bf16-mixed at the larger size."""
PICTURE_MODELS = ("vit", "convnext")
PRECISIONS = ("fp32", "bf16-mixed", "bf16-true")
SIZES = (2, 8)
CHECKPOINTING = ("none", "selective", "full")
LARGE_BYTES = 200 * 2**20
SHORT = WindowPlan(min_seconds=0.1, max_seconds=0.1, target_half_width=0)


def configurations(family: str) -> list[dict[str, Any]]:
    """What is compared: precision, checkpointing and two sizes, then one other knob at a time.

    ConvNext cannot be checkpointed.
    """
    kinds = ("none",) if family == "convnext" else CHECKPOINTING
    sizes = (4, 16) if family in PICTURE_MODELS else SIZES
    crossed = [
        {"micro_batch_size": size, "precision": precision, "activation_checkpointing": kind}
        for precision, kind, size in product(PRECISIONS, kinds, sizes)
    ]
    return crossed + [{"micro_batch_size": sizes[-1], "precision": "bf16-mixed", **one} for one in OTHERS[family]]


def write_spec(family: str, folder: Path) -> Path:
    """The family's study as a spec file."""
    pictures = family in PICTURE_MODELS
    if pictures:
        make_pictures(folder / "pictures", per_class=24)
    spec = {
        "study": f"estimate-{family}",
        "objective": {
            "kind": "image_classifier" if pictures else "causal_lm",
            "model": {"config": dict(MODELS[family])},
            "data": PICTURES if pictures else TEXT,
        },
        "global_batch_size": 32,
        "baseline": {"micro_batch_size": 1},
        "search": {"micro_batch_size": [1, 2], "precision": list(PRECISIONS)},
        "limits": {"trials": 1, "time": "10m"},
    }
    file = folder / f"{family}.yaml"
    file.write_text(json.dumps(spec), encoding="utf-8")  # JSON is YAML
    return file


def compare(family: str) -> list[dict[str, Any]]:
    """Predicted and measured peak of every configuration of a family."""
    with tempfile.TemporaryDirectory(prefix="tightfit-estimate-") as place:
        bench = Bench(write_spec(family, Path(place)))
        try:
            predicted = predictions(bench, configurations(family))
            return [_compare_one(bench, family, config, told) for config, told in predicted]
        finally:
            bench.lane.close()


def rows_of(table: Path) -> list[dict[str, Any]]:
    """The same rows out of a replay table; its name stands for the family."""
    lines = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
    return [
        {
            "family": table.stem,
            "config": row["config"],
            "measured_bytes": row["peak_memory_bytes"],
            "peak_memory_bytes": row.get("predicted_peak_memory_bytes"),
        }
        for row in lines[1:]
    ]


def predictions(bench: Bench, configs: Sequence[Mapping[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What an ``estimate`` child answers: (whole configuration, prediction)."""
    asked = [dict(bench.request("search", config, SHORT).config) for config in configs]
    request = bench.request("estimate", {}, SHORT, answer={"configs": asked})
    end = bench.lane.run(request, NO_DEADLINE, environment=bench.spec.environment)
    assert end.verdict.outcome == "completed", end.evidence
    return [(dict(answer["config"]), dict(answer["prediction"])) for answer in end.answers]


def _compare_one(bench: Bench, family: str, config: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    request = bench.request("search", {k: v for k, v in config.items() if k != "accumulation_steps"}, SHORT)
    end = bench.lane.run(request, NO_DEADLINE, environment=bench.spec.environment)
    measured = end.memory.get("peak_memory_bytes")
    row = {"family": family, "config": config, "measured_bytes": measured, **told}
    if measured and told["peak_memory_bytes"]:
        say(
            f"{family:9}{config['precision']:11}{config['activation_checkpointing']:10}{config['micro_batch_size']:3} "
            f"predicted {told['peak_memory_bytes'] / 2**20:7.1f} measured {measured / 2**20:7.1f} MiB "
            f"{told['peak_memory_bytes'] / measured - 1:+6.1%}  {told['seconds']:.2f} s"
        )
    else:
        say(f"{family} {config}: {told['note']} {end.verdict}")
    return row


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Errors by (family, precision): of the tensors alone, with the prior, and after one run of each precision."""
    known = [row for row in rows if row["measured_bytes"] and row["peak_memory_bytes"]]
    families = sorted({row["family"] for row in known})
    large = [row for row in known if row["family"] not in PICTURE_MODELS and row["measured_bytes"] > LARGE_BYTES]
    return {
        "pairs": {f"{f} {p}": _errors(known, f, p) for f in families for p in PRECISIONS},
        "raw": {
            "large_language_models": {"tensors": _median_error(large), "with_prior": _median_error(large, prior=True)},
            "all": {"tensors": _median_error(known), "with_prior": _median_error(known, prior=True)},
            "coverage": _share([_covered(row, []) for row in known]),
            "rows": len(known),
        },
        "corrected": {family: _corrected([row for row in known if row["family"] == family]) for family in families},
    }


def _errors(rows: Sequence[Mapping[str, Any]], family: str, precision: str) -> dict[str, Any]:
    mine = [row for row in rows if row["family"] == family and row["config"]["precision"] == precision]
    return {
        "offset_mib": [round((row["measured_bytes"] - row["peak_memory_bytes"]) / 2**20, 1) for row in mine],
        "relative_error": [round(row["peak_memory_bytes"] / row["measured_bytes"] - 1, 4) for row in mine],
        "median_error": _median_error(mine),
    }


def _median_error(rows: Sequence[Mapping[str, Any]], *, prior: bool = False) -> float | None:
    told = [_bar(row, []).mean_bytes if prior else row["peak_memory_bytes"] for row in rows]
    errors = [abs(bytes_ / row["measured_bytes"] - 1) for bytes_, row in zip(told, rows, strict=True)]
    return median(errors) if errors else None


def _observation(row: Mapping[str, Any]) -> Observation:
    return Observation(
        config=TrainingConfig.from_mapping(row["config"]),
        predicted_bytes=row["peak_memory_bytes"],
        measured_bytes=row["measured_bytes"],
    )


def _covered(row: Mapping[str, Any], seen: Sequence[Mapping[str, Any]]) -> bool:
    bar = _bar(row, seen)
    return bool(bar.low_bytes <= row["measured_bytes"] <= bar.high_bytes)


def _bar(row: Mapping[str, Any], seen: Sequence[Mapping[str, Any]]) -> Any:
    model = learn([_observation(one) for one in seen], device_kind="cpu")
    return model.predict(TrainingConfig.from_mapping(row["config"]), row["peak_memory_bytes"], limit_bytes=None)


def _corrected(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = {row["config"]["precision"]: row for row in sorted(rows, key=lambda row: -row["measured_bytes"])}
    seen = list(first.values())
    rest = [row for row in rows if row not in seen]
    errors = [abs(_bar(row, seen).mean_bytes / row["measured_bytes"] - 1) for row in rest]
    half_widths = [(_bar(row, seen).high_bytes / _bar(row, seen).mean_bytes) - 1 for row in rest]
    return {
        "median_error": median(errors),
        "largest_error": max(errors),
        "coverage": _share([_covered(row, seen) for row in rest]),
        "median_half_width": median(half_widths),
    }


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def main(sources: Sequence[str]) -> dict[str, Any]:
    """Compares families and tables (every family without any) and returns all rows and the summary."""
    rows = [
        row
        for source in sources or list(MODELS)
        for row in (rows_of(Path(source)) if source.endswith(".jsonl") else compare(source))
    ]
    return {"rows": rows, **summary(rows)}


if __name__ == "__main__":
    print_json(main(sys.argv[1:]))
