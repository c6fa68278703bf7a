"""Studies in a store as a real run leaves them: a baseline and a winner, searched and confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from objectives.config import TrainingConfig
from objectives.knobs import config_key
from storage import runs, studies, trials
from storage.database import Database
from storage.records import StudyRecord
from tuner import spec as specs

GIB = 2**30
LLAMA = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
VERSIONS = {"torch": "2.13.0", "transformers": "5.24.0"}
H100 = "NVIDIA H100 80GB HBM3"


def confirmed_study(
    database: Database,
    name: str = "llama",
    *,
    model: dict[str, Any] | None = None,
    device: str = H100,
    length: int = 1024,
    batch: int = 16,
    memory: str = "92%",
    total: int = 80 * GIB,
    winner: dict[str, Any] | None = None,
    peaks: Sequence[int] = (20 * GIB, 40 * GIB),
    versions: dict[str, Any] | None = None,
    driver: str | None = None,
    confirmed: bool = True,
    **more: Any,
) -> StudyRecord:
    """A finished study of two trials: the baseline (100 tokens/s) and the winner (200)."""
    asked = specs.read({
        "study": name,
        "objective": {
            "kind": "causal_lm", "model": {"config": {**LLAMA, **(model or {})}},
            "data": {"path": "stdlib", "sequence_length": length, "tokenizer": {"train": {"vocab_size": 512}}},
            **more,
        },
        "global_batch_size": batch, "search": {"micro_batch_size": {"low": 1, "high": batch}},
        "limits": {"memory": memory},
    })  # fmt: skip
    made = studies.create(database, name=name, spec=specs.to_mapping(asked), identity=specs.identity(asked))
    shape = {**LLAMA, "num_key_value_heads": 8, "intermediate_size": 11008, "vocab_size": 512, **(model or {})}
    facts = {"data": {"model_type": shape["model_type"], "model_shape": shape, "parameters": 10**7}}
    limit = asked.limits.memory.bytes_of(total)
    studies.set_facts(database, made.id, facts, device=device, memory_limit_bytes=limit)
    configs = ({"micro_batch_size": 1}, {"micro_batch_size": batch // 2, "precision": "bf16-mixed", **(winner or {})})
    rows = [_trial(database, made.id, config, batch, peak) for config, peak in zip(configs, peaks, strict=True)]
    hardware = {"total_memory_bytes": total, "versions": versions or VERSIONS, "driver": driver}
    for row, rate in zip(rows, (100.0, 200.0), strict=True):
        _window(database, made.id, row, "search", rate, hardware)
    for _ in range(3 if confirmed else 0):
        for row, rate in zip(rows, (100.0, 200.0), strict=True):
            _window(database, made.id, row, "confirm", rate, hardware)
            trials.update_fields(database, row, confirmed=True, confirmed_throughput=rate)
    studies.set_status(database, made.id, "finished", "all done")
    return studies.get(database, made.id)


def _trial(database: Database, study: int, values: dict[str, Any], batch: int, peak: int) -> int:
    config = TrainingConfig(**{**values, "accumulation_steps": batch // int(values["micro_batch_size"])})
    row = trials.reserve(
        database, study_id=study, config=config.to_mapping(), config_key=config_key(config), source="grid"
    )
    assert row is not None
    trials.finish(
        database, row.id, outcome="completed", throughput=100.0 * (1 + row.number), throughput_unit="tokens_per_second",
        peak_memory_bytes=peak, seconds=9.0, windows=1,
    )  # fmt: skip
    return row.id


def _window(database: Database, study: int, trial: int, purpose: str, rate: float, hardware: dict[str, Any]) -> None:
    run = str(uuid4())
    runs.start(database, id=run, study_id=study, trial_id=trial, purpose=purpose)
    runs.finish(
        database, run, outcome="completed", throughput=rate, peak_memory_bytes=GIB, seconds=9.0, hardware=hardware,
        measurement={
            "throughput": rate, "throughput_unit": "tokens_per_second", "throughput_standard_error": rate / 1000,
        },
    )  # fmt: skip
