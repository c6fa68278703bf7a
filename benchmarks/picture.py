"""Draws the front of a stored study as an SVG file: throughput against peak memory, every measured trial.

python -m benchmarks.picture STUDY FILE.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

from tuner.answer.picture import draw


def main(study: str, file: str) -> None:
    """Reads the study from the store and writes the picture."""
    from storage import runs, studies, trials
    from storage.database import Database
    from tuner import spec as specs
    from tuner.answer.summary import StudyView, trial_json
    from tuner.settings import Settings

    database = Database.open(Settings.from_environment().store_url)
    found = studies.find(database, study)
    assert found is not None, study
    rows = trials.list_of(database, found.id)
    view = StudyView(
        study=found, trials=rows, runs=runs.list_of(database, study_id=found.id), spec=specs.from_mapping(found.spec)
    )
    measured = [trial_json(each, view) for each in view.ended if each.outcome == "completed"]
    best = next((each.number for each in view.ended if each.id == view.answer.best), None)
    title = f"{study}: {len(measured)} measured trials on {found.device}, 95 % intervals"
    Path(file).write_text(draw(title, measured, [t.number for t in view.front], 0, best), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
