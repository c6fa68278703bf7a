"""What is remembered: studies, trials, runs and their evidence, in PostgreSQL or in one embedded SQLite file.

Functions take a :class:`storage.database.Database` and return the frozen records of :mod:`storage.records`. This
package knows nothing of objectives, knobs or samplers: configurations and measurements are JSON to it.
"""
