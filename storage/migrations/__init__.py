"""Migrations of the ``tuner_`` tables, run by :func:`storage.schema.upgrade`; there is no ``alembic.ini``."""
