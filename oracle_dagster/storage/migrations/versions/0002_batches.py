
"""The first stage of a key in a batch, so that an applied plan rebuilds exactly what it named."""

from __future__ import annotations

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
