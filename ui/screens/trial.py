"""One trial: its configuration, what was predicted and measured, where the time went, its runs and their evidence."""

import streamlit as st

from ui import data, links
from ui.parts import trial_page

name = links.chosen_study() or data.newest_study()
number = links.chosen_trial()
if name is None or number is None:
    st.title("Trial", anchor=False)
    st.info("Open a trial from its study: select it on the front or in the table.")
    st.page_link(links.STUDIES_PAGE, label="All studies", icon=":material/science:")
else:
    links.remember_study(name)
    trial_page.draw(data.required(name), number)
