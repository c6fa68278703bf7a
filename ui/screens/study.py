"""One study: what runs, the front, the answer and why, every trial."""

from ui import data, links
from ui.parts import study_page

name = links.chosen_study() or data.newest_study()
if name is None:
    study_page.draw_no_study()
else:
    links.remember_study(name)
    study_page.draw(data.required(name))
