"""The page of a new study put together: the past study it starts from, form and editor, verdict, plan, the button."""

from __future__ import annotations

import streamlit as st

from tuner import spec as specs
from tuner.cli import words
from tuner.errors import SpecProblem
from ui import acting, data, links
from ui.forms.check import Checked, check
from ui.forms.draft import Draft
from ui.forms.outlook import Memory, Outlook, outlook
from ui.forms.past import as_yaml, free_name
from ui.guard import guarded
from ui.parts import spec_form
from ui.plain import markdown, shortened

START = """\
# What to tune. The form on the left and this text are the same thing.
study: my-study
objective:
  kind: causal_lm
  model:
    config: {model_type: llama, hidden_size: 512, intermediate_size: 1408, num_hidden_layers: 4, num_attention_heads: 8}
  data: {path: stdlib, tokenizer: {train: {vocab_size: 4096}}, sequence_length: 128}
# What the optimizer sees per step: every trial keeps it.
global_batch_size: 8
# What you would have used: trial 0.
baseline: {micro_batch_size: 1, precision: fp32, activation_checkpointing: full}
search:
  micro_batch_size: {low: 1, high: 8}
  precision: [fp32, bf16-mixed]
  activation_checkpointing: [none, selective, full]
  loss: [full, chunked]
limits: {memory: 80%, trials: 24, time: 10m}
"""
"""A study that runs on any machine."""
BLANK = "A study that runs anywhere"
MOST_PROBLEMS = 30
DRAFT, PAST, STARTED = "draft of a study", "past", "started from"
"""Names in a session: what is written, the study to start from, and the one it was started from."""
FROM = "from"
"""The address's parameter that names the study to start from."""


def draw() -> None:
    """The page for an editor."""
    draft: Draft = st.session_state.setdefault(DRAFT, Draft(text=START))
    spec_form.take_changes(draft)
    _draw_past()
    _take_past(draft)
    left, right = st.columns([1.05, 1.0], gap="large")
    with right:
        st.subheader("YAML", anchor=False)
        spec_form.draw_editor(draft)
        checked = check(draft.text, has_gpu=_has_gpu())
        _draw_verdict(checked)
        _draw_start(draft, checked)
    with left:
        st.subheader("Form", anchor=False)
        spec_form.draw_form(draft)


def _has_gpu() -> bool | None:
    living = data.living_workers()
    return any(each.device_kind == "cuda" for each in living) if living else None


def _draw_past() -> None:
    names = [each.name for each in data.list_studies()]
    asked = st.query_params.get(FROM)
    if PAST not in st.session_state:  # a fresh page, or one that was left and opened again
        before = st.session_state.get(STARTED, asked)
        st.session_state[PAST] = before if before in names else BLANK
    st.selectbox("Start from", [BLANK, *names], key=PAST, width=420, format_func=_cut)


def _cut(name: str) -> str:
    return shortened(name, 80)


def _take_past(draft: Draft) -> None:
    """Another start than before replaces the text."""
    chosen = st.session_state[PAST]
    if chosen == st.session_state.get(STARTED, BLANK):
        return
    text = START
    if chosen != BLANK:
        text = as_yaml(data.required(chosen).spec, free_name(chosen, {each.name for each in data.list_studies()}))
    draft.text = text
    st.session_state[STARTED] = chosen


def _draw_verdict(checked: Checked) -> None:
    if checked.spec is None:
        many = len(checked.problems)
        st.error(f"{many} problem{'' if many == 1 else 's'} to mend", icon=":material/error:")
        for problem in list(checked.problems)[:MOST_PROBLEMS]:
            _draw_problem(problem)
    elif checked.refusal is not None:
        st.error("No worker here may run this", icon=":material/block:")
        st.text(checked.refusal)
    else:
        st.success("This can be run.", icon=":material/check_circle:")


def _draw_problem(problem: SpecProblem) -> None:
    place = ", ".join(part for part in (f"line {problem.line}" if problem.line else "", problem.where) if part)
    st.text(f"{place + ': ' if place else ''}{problem.reason.rstrip('.')}.{' ' + problem.fix if problem.fix else ''}")


def _draw_start(draft: Draft, checked: Checked) -> None:
    with st.container(border=True, key="plan"):
        st.subheader("The plan", anchor=False)
        if checked.spec is None:
            st.text("Mend the problems above first: then it stands here what the study will take.")
        else:
            with guarded():
                known = data.alike(specs.identity(checked.spec)["objective"])
                study, trials = known if known is not None else (None, ())
                _draw_outlook(outlook(checked.spec, study, trials))
        _draw_workers()
        pressed = st.button(
            "Submit", key="submit", type="primary", icon=":material/rocket_launch:", disabled=not checked.is_good
        )
        if pressed:
            _submit(draft.text)


def _draw_outlook(found: Outlook) -> None:
    size = f"{found.configurations:,}" if found.exact else f"up to {found.configurations:,}"
    with st.container(horizontal=True, key="plan-numbers"):
        st.metric("Configurations", size, width="content")
        st.metric("Trials at most", f"{found.plan.trials:,}", width="content")
        st.metric("Time, at most about", words.duration(found.plan.seconds), width="content")
        if found.memory is not None and found.memory.smallest_bytes is not None:
            low, high = words.size(found.memory.smallest_bytes), words.size(found.memory.largest_bytes)
            st.metric("Predicted peak memory", f"{low} to {high}", width="content")
    if found.memory is None:
        st.text("What it needs of memory is not known before its first worker has looked. To know it without a trial:")
        st.code("tuner estimate SPEC", language="bash")
    else:
        st.text(memory_text(found.memory))


def memory_text(memory: Memory) -> str:
    """What is predicted, and from where that is known."""
    counts = {
        "fit": memory.fits, "may fit or not": memory.doubtful, "will not fit": memory.misfits,
        "have no prediction": memory.unknown,
    }  # fmt: skip
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    limit = f" within {words.size(memory.limit_bytes)}" if memory.limit_bytes else ""
    return f"{said}{limit}: as study {memory.study!r} on {memory.device or 'its device'} knows."


def _draw_workers() -> None:
    living = data.living_workers()
    if not living:
        st.warning("No worker is alive: the study will wait in the queue until one comes.", icon=":material/memory:")
        return
    idle = sum(each.status == "idle" for each in living)
    st.text(f"{len(living)} worker{'' if len(living) == 1 else 's'} alive, {idle} idle.")


def _submit(text: str) -> None:
    with guarded():
        made = acting.submit(text)
        st.toast(f"{markdown(made['study'])}: handed to the workers.", icon=":material/rocket_launch:")
        st.session_state.pop(DRAFT, None)
        st.session_state.pop(STARTED, None)
        st.switch_page(links.STUDY_PAGE, query_params={"study": str(made["study"])})
