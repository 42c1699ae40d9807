"""An explanation as one HTML file with charts; it needs nothing beside it and asks nothing of the network.

Numbers and words are those of the terminal page and of ``--json``; only the layout is made here.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def document(page: Object) -> str:
    """The page."""
    raise NotImplementedError
