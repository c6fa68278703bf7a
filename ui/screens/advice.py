"""The seven mistakes, each looked for in what a study has measured."""

import streamlit as st

from ui import data, links
from ui.parts import advice_page, export_page, study_rows

st.title("Advice", anchor=False)
name = export_page.chosen(links.chosen_study())
if name is None:
    study_rows.draw_empty()
else:
    links.remember_study(name)
    advice_page.draw(data.required(name))
