"""Settings as people write them, on the command line, in a file or in the user interface."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class SettingsError(ValueError):
    """Settings that cannot be read; the message names the text and how to write it."""


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Read ``path=value`` texts; a value is JSON where it parses as JSON, else a string.

    Raises:
        SettingsError: no ``=``, an empty path, or a path given twice.

    """
    values: dict[str, Any] = {}
    for text in texts:
        path, separator, value = text.partition("=")
        path = path.strip()
        if separator == "" or path == "":
            raise SettingsError(f"{text!r} is not path=value; write it like trend.positive_threshold=0.2")
        if path in values:
            raise SettingsError(f"{path} is given twice; name each path once")
        try:
            values[path] = json.loads(value)
        except json.JSONDecodeError:
            values[path] = value
    return values


def document(text: str, place: str) -> dict[str, Any]:
    """Read the settings of a TOML or JSON text, by section, as ``{path: value}``.

    Args:
        text: JSON where it begins with a brace, else TOML.
        place: what an error says it was.

    Raises:
        SettingsError: neither.

    """
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError as error:
        raise SettingsError(f"{place} cannot be read as settings: {error}. Write TOML or JSON.") from None
    return dict(_paths(found, ""))


def _paths(value: object, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [
            leaf
            for name, inner in value.items()
            for leaf in _paths(inner, f"{path}.{name}" if path else str(name))
        ]
    return [(path, value)]
