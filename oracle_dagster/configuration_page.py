"""The page ``docs/configuration.md``, generated from the configuration models so that it stays current.

``python -m oracle_dagster.configuration_page`` prints it; a test compares it with the file.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from oracle_core.config import OracleConfig, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRODUCTION = """\
# Configuration

This page is generated from the models in `oracle_core/config.py`; a test keeps it current.

All settings are versioned together. A cycle uses the version that is active when it starts, or one named by
the command, and records which. Change settings by their path; several given together are checked together,
and nothing changes if any is wrong:

```
oracle config set trend.positive_threshold=0.2 trend.negative_threshold=-0.2 --reason "fewer weak trends"
oracle config set scoring.half_life_hours.7d=48
oracle config set scoring.credibility_by_source_type.newsletter=0.5
```

`oracle run --set PATH=VALUE` tries values without activating them: they are stored as a version that is not
active, and the results carry its number.

Where a setting is a mapping, `{…}` shows its keys, and each key is a path of its own. In
`scoring.credibility_by_source_type` and `scoring.event_type_base_rates` new keys may be added; the keys of
the others are fixed. NaN and infinities are refused everywhere. Numbers in brackets, such as R5, name the
rule that a setting belongs to; [rules.md](rules.md) says where each is.
"""


def page() -> str:
    """The whole page as Markdown."""
    parts = [INTRODUCTION]
    for name, field in OracleConfig.model_fields.items():
        section = field.annotation
        if not (isinstance(section, type) and issubclass(section, Section)):
            raise TypeError(f"{name} is not a section of the configuration")
        parts.append("\n".join(_section(name, section)))
    return "\n".join(parts)


def _section(name: str, section: type[Section]) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{(section.__doc__ or '').strip().splitlines()[0]}\n"
    yield "| path | default | allowed | meaning |"
    yield "|---|---|---|---|"
    defaults = section()
    for field_name, field in section.model_fields.items():
        default = defaults.model_dump(mode="json")[field_name]
        if isinstance(default, dict):
            keys = ", ".join(f"`{key}`&nbsp;{json.dumps(value)}" for key, value in default.items())
            shown, path = f"{{ {keys} }}", f"{name}.{field_name}.KEY"
        else:
            shown, path = f"`{json.dumps(default)}`", f"{name}.{field_name}"
        yield f"| `{path}` | {shown} | {_allowed(section, field_name)} | {field.description or ''} |"
    yield ""


def _allowed(section: type[Section], field_name: str) -> str:
    """Type and range, as JSON Schema states them."""
    schema = section.model_json_schema()["properties"][field_name]
    schema = schema.get("additionalProperties", schema)
    if not isinstance(schema, dict):
        raise TypeError(f"{field_name} has no schema")
    kind = {"number": "number", "integer": "whole number", "boolean": "`true` or `false`"}[schema["type"]]
    bounds = [
        f"{sign} {schema[key]:g}"
        for key, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "<"),
        )
        if key in schema
    ]
    return f"{kind} {', '.join(bounds)}".strip()


if __name__ == "__main__":
    sys.stdout.write(page())
