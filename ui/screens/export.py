"""A measured configuration as files for the training job."""

import streamlit as st

from ui import data, links
from ui.parts import export_page, study_rows

st.title("Export", anchor=False)
name = export_page.chosen(links.chosen_study())
if name is None:
    study_rows.draw_empty()
else:
    links.remember_study(name)
    export_page.draw(data.required(name))
