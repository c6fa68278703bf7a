"""The export's page: which trial, which format; the files with copy and download, and what they lack."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from storage.records import StudyRecord
from tuner.answer.summary import StudyView
from tuner.cli import words
from tuner.errors import TightfitError
from tuner.export import FORMATS, TABLE, Format, export, table
from tuner.export.choose import PICKS, choose
from tuner.export.documents import document
from tuner.export.handover import ExportRefused, Handover, for_ranks
from ui import data, links
from ui.parts import study_head
from ui.plain import markdown, shortened

GIB = 2**30
CARDS_GIB = (6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 141, 192)
"""Memory of cards that people have: marks of the slider where the front lies around them."""
LANGUAGES = {"json": "json", "yaml": "yaml", "toml": "toml", "sh": "bash", "sbatch": "bash", "py": "python"}
MOST_LISTED = 500
MOST_SHOWN_CHARACTERS = 60_000
EPOCH = (2020, 1, 1, 0, 0, 0)
"""In an archive every file carries this time: the same export is the same archive."""


def chosen(named: str | None) -> str | None:
    """The study that is exported, which a person may change; None in an empty store."""
    names = [each.name for each in data.list_studies()[:MOST_LISTED]]
    if named is not None and named not in names:
        names.insert(0, named)
    if not names:
        return None
    at = names.index(named) if named in names else 0
    return st.selectbox("Study", names, index=at, key="export-study", width=420, format_func=_cut)


def draw(study: StudyRecord) -> None:
    """The page of a stored study."""
    view = data.handover_view(study)
    st.text(study_head.facts(study, data.answer(study)))
    if not view.trials:
        st.info("It has no trial yet: nothing to export.", icon=":material/hourglass_empty:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", key="export-choices"):
        pick = st.segmented_control("Pick", PICKS, default="fastest", key="pick", bind="query-params", required=True)
        ranks = st.number_input(
            "Ranks of the job", min_value=1, max_value=100_000, value=None, key="ranks", width=170,
            placeholder="as measured", bind="query-params",
        )  # fmt: skip
        name = st.selectbox(
            "Format", [*(each.name for each in FORMATS), TABLE], key="to", width=260, bind="query-params",
            format_func=_title,
        )  # fmt: skip
    if name == TABLE:
        _draw_table(study)
        return
    _draw_configuration(view, str(pick), ranks, _format(str(name)))


def _title(name: str) -> str:
    return next((each.title for each in FORMATS if each.name == name), "Replay table of the whole study")


def _format(name: str) -> Format:
    return next((each for each in FORMATS if each.name == name), FORMATS[0])


def _cut(name: str) -> str:
    return shortened(name, 80)


def _draw_configuration(view: StudyView, pick: str, ranks: int | None, target: Format) -> None:
    limit = _memory(view)
    try:
        found = choose(view, pick, None if limit is None else str(limit))
        handover = for_ranks(found, found.ranks if ranks is None else int(ranks))
        made = document(
            export(handover, target), study=handover.study, trial=handover.trial, name=target.name, target=target.target
        )
    except TightfitError as refused:
        st.warning(markdown(said(refused)), icon=":material/block:")
        return
    _draw_trial(handover)
    _draw_files(made["files"], f"{target.name}-trial-{handover.trial}")
    _draw_rest(made)


def said(refused: TightfitError) -> str:
    """A refusal in the words of this page: it names command-line options."""
    return str(refused).replace("--memory", "memory").replace("; nothing was written", "")


def _memory(view: StudyView) -> int | None:
    """What the job's device may give at most, in bytes; None for the study's own limit."""
    marks = memory_marks(view)
    if len(marks) < 2:
        return None
    if st.session_state.get("memory") not in marks:
        st.session_state.pop("memory", None)
    given = st.select_slider(
        "Memory of the job's device", marks, value=marks[-1], key="memory", format_func=words.size,
        help="Only what was measured to need at most so much.",
    )  # fmt: skip
    return None if given == marks[-1] else int(given)


def memory_marks(view: StudyView) -> Sequence[int]:
    """Sizes at which the answer changes: each peak of the front, cards between them, and the study's limit.

    Of sizes that read alike the largest is taken: what is named fits.
    """
    peaks = sorted({each.peak_memory_bytes for each in view.front if each.peak_memory_bytes is not None})
    if not peaks:
        return ()
    most = view.study.memory_limit_bytes or peaks[-1]
    cards = [card * GIB for card in CARDS_GIB if peaks[0] < card * GIB < most]
    by_words = {words.size(each): each for each in sorted({*peaks, *cards, most})}
    return sorted(by_words.values())


def _draw_trial(handover: Handover) -> None:
    rate = words.rate(handover.throughput, handover.throughput_unit)
    how = "confirmed" if handover.confirmed else "not confirmed"
    with st.container(horizontal=True, vertical_alignment="center", key="export-trial"):
        st.page_link(
            links.TRIAL_PAGE, label=f"Trial {handover.trial}", icon=":material/deployed_code:",
            query_params={"study": handover.study, "trial": str(handover.trial)},
        )  # fmt: skip
        st.text(f"{rate} ({how}), {words.size(handover.peak_memory_bytes)} peak memory")
    for remark in handover.remarks:
        st.caption(markdown(remark))


def _draw_files(files: Mapping[str, str], stem: str) -> None:
    st.download_button(
        "Download all files", archive(files), file_name=f"{stem}.zip", mime="application/zip", key="all",
        type="primary", icon=":material/folder_zip:", on_click="ignore",
    )  # fmt: skip
    for tab, (name, text) in zip(st.tabs(list(map(markdown, files))), files.items(), strict=True):
        with tab:
            st.download_button(
                f"Download {markdown(name)}", text, file_name=name, mime="text/plain", key=f"file-{name}",
                icon=":material/download:", on_click="ignore",
            )  # fmt: skip
            st.code(_cut_text(text), language=LANGUAGES.get(name.rpartition(".")[2]), wrap_lines=True)


def _cut_text(text: str) -> str:
    if len(text) <= MOST_SHOWN_CHARACTERS:
        return text
    return f"{text[:MOST_SHOWN_CHARACTERS]}\n... the rest is in the download"


def archive(files: Mapping[str, str]) -> bytes:
    """The files as one ZIP archive; scripts can be started from it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".sh") else 0o644) << 16
            pack.writestr(entry, text)
    return made.getvalue()


def _draw_rest(made: Mapping[str, Any]) -> None:
    st.caption(markdown(f"Made for {made['target']}"))
    left = made["not_carried"]
    if left:
        st.subheader("Not in the files", anchor=False)
        for each in left:
            st.text(f"{each['knob']} {words.value(each['value'])}: {each['reason']}")
            if each["code"]:
                st.code("\n".join(each["code"]), language="python", wrap_lines=True)
    else:
        st.text("The files carry every knob.")
    with st.expander("Good to know", expanded=True, icon=":material/info:", key="export-notes"):
        for note in made["notes"]:
            st.text(f"• {note}")
    with st.expander("Where each knob stands", icon=":material/list:", key="export-carried"):
        st.dataframe([{"knob": knob, "stands in": where} for knob, where in made["carried"].items()], hide_index=True)


def _draw_table(study: StudyRecord) -> None:
    st.text("Every configuration of the study in a line of JSON, for benchmarks of search strategies:")
    st.code("python -m benchmarks.search --table table.jsonl", language="bash")
    try:
        text = table.write(data.view(study)).files[table.NAME]
    except ExportRefused as refused:
        st.warning(markdown(said(refused)), icon=":material/block:")
        return
    st.download_button(
        "Download table.jsonl", text, file_name=table.NAME, mime="application/jsonl", key="table", type="primary",
        icon=":material/download:", on_click="ignore",
    )  # fmt: skip
