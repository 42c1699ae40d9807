"""Alembic's environment: migrates over the connection that ``migrate.py`` hands in; it opens none itself."""

from __future__ import annotations

from typing import Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from oracle_dagster.storage.migrate import VERSION_TABLE
from oracle_dagster.storage.schema import Xid8, metadata


def _render(kind: str, item: object, autogenerate: AutogenContext) -> str | Literal[False]:
    if kind == "type" and isinstance(item, Xid8):
        autogenerate.imports.add("from oracle_dagster.storage.schema import Xid8")
        return "Xid8()"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_item=_render,
)
with context.begin_transaction():
    context.run_migrations()
