"""Figures, pure: tables in, plotly figures out. No store, no Streamlit."""
