"""The workers: their devices, when they last spoke, what they do, and what is wrong with one."""

import streamlit as st

from ui.parts import worker_rows
from ui.parts.live import ticking

st.title("Workers", anchor=False)
ticking(worker_rows.draw, every=2.0, key="workers")
