"""What is seen: Streamlit screens. They read through :mod:`ui.data` and act through ``tuner``; nobody imports them."""
