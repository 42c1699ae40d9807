"""Alembic's environment and the revisions in ``versions``; run by ``migrate.py`` only."""
