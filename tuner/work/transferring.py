"""Which earlier studies of the store a study starts from: found once, kept in its facts, read again by every worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from storage import overview, studies, trials
from storage.errors import NotFound
from tuner import spec as specs
from tuner.progress import Notice
from tuner.search.transfer import LEAST_SIMILARITY, Past, earlier_studies, profile_of, sentence, similarity

if TYPE_CHECKING:
    from storage.records import StudyRecord
    from tuner.search.planner.observation import Earlier
    from tuner.search.transfer import Profile
    from tuner.work.session import Session

USED_BY = ("auto",)
"""Samplers that take it."""
LISTED, LOOKED_AT = 500, 30
"""Newest studies of the store whose device is compared, and of those on the same device whose spec is read."""
FACT = "transfer"
"""Key of the study's facts: ``[{"study", "id", "similarity", "trials"}]``."""


def earlier_of(session: Session) -> tuple[Earlier, ...]:
    """What this study starts from; empty where the spec opted out or nothing is alike. Tells it when it is found.

    Later sessions and other workers take the same studies again (as they are then; a deleted one teaches no more).
    """
    spec, study = session.spec, session.study
    mine = profile_of(study, spec)
    if not spec.transfer or spec.sampler not in USED_BY or mine is None:
        return ()
    stored: Sequence[Mapping[str, Any]] | None = study.facts.get(FACT)
    if stored is not None:
        return earlier_studies(mine, list(_past(session, (int(each["id"]) for each in stored), mine)))
    past = list(_past(session, _candidates(session), mine))
    found = earlier_studies(mine, past)
    ids = {each.name: each.study_id for each in past}
    _keep(session, found, ids)
    if (told := sentence(found)) is not None:
        session.report(Notice(text=told))
    return found


def _candidates(session: Session) -> list[int]:
    listed = overview.list_studies(session.database, limit=LISTED)
    same = [each for each in listed if each.device == session.study.device and each.id != session.study.id]
    return [each.id for each in same if each.counts.get("completed")][:LOOKED_AT]


def _past(session: Session, ids: Iterable[int], mine: Profile) -> Iterable[Past]:
    for study_id in ids:
        try:
            study = studies.get(session.database, study_id)
        except NotFound:
            continue
        profile = _profile(study)
        if profile is not None and similarity(mine, profile) >= LEAST_SIMILARITY:
            rows = trials.list_of(session.database, study_id)
            yield Past(study_id=study_id, name=study.name, profile=profile, trials=rows)


def _profile(study: StudyRecord) -> Profile | None:
    try:
        return profile_of(study, specs.from_mapping(study.spec))
    except (KeyError, TypeError, ValueError):  # written by another version
        return None


def _keep(session: Session, found: Sequence[Earlier], ids: Mapping[str, int]) -> None:
    kept = [
        {"study": each.name, "id": ids[each.name], "similarity": round(each.similarity, 4), "trials": len(each.seen)}
        for each in found
    ]
    facts = {**session.study.facts, FACT: kept}
    session.refresh(studies.set_facts(session.database, session.study.id, facts))
