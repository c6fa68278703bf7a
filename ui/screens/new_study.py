"""A new study: a form and its YAML, judged as they are written; the plan; off to the workers."""

import streamlit as st

from ui import access
from ui.parts import new_study

st.title("New study", anchor=False)
if access.may_act():
    new_study.draw()
else:
    st.info("You may look at these screens, not start studies.", icon=":material/lock:")
