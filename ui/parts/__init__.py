"""Parts of a page that draw: each takes what :mod:`ui.data` read and puts elements on the page."""
