"""What is watched and told while it runs, and from which values on: from the environment, like the sensor's.

Not part of the configuration of the rules: no decision depends on any of this, and changing it makes nothing
stale. docs/operations.md lists every variable.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields
from typing import Any, Final, Self
from urllib.parse import urlsplit

URL_VARIABLE: Final = "ORACLE_WEBHOOK_URL"


class LimitError(ValueError):
    """A variable of the environment cannot be used; the message names it, its value and what it takes."""


@dataclass(frozen=True)
class Limits:
    """From where on a check warns. 0 hours switches a check of freshness off; shares are in [0, 1].

    ``drift_cycles``: how many earlier cycles of the same keys a drift is measured against;
    ``least_keys``: with fewer keys than this no drift and no share of recommendations is judged.
    """

    fresh_documents_hours: float = 24.0
    fresh_bars_hours: float = 96.0
    fresh_events_hours: float = 0.0
    max_suppressed_share: float = 0.9
    max_rejected_share: float = 0.05
    max_drift: float = 0.3
    drift_cycles: int = 10
    least_keys: int = 20

    @classmethod
    def from_environment(cls) -> Self:
        """Each from ``ORACLE_`` and its name in capitals, else its default.

        Raises:
            LimitError: a value cannot be used.

        """
        return cls(**_read(cls, ones=("max_suppressed_share", "max_rejected_share", "max_drift")))


@dataclass(frozen=True)
class NoticeSettings:
    """When a changed decision is told, how often at most, and to whom.

    A change is told when it has persisted for ``notice_cycles`` cycles of its key, or at once where the
    confidence moved by ``notice_margin`` at least since it was last told. At most ``notice_daily_budget``
    messages in 24 hours; 0 tells nothing at all. Without an address the log is told.
    """

    notice_cycles: int = 2
    notice_margin: float = 0.2
    notice_daily_budget: int = 24
    webhook_timeout_seconds: float = 5.0
    webhook_attempts: int = 3
    webhook_url: str = ""
    pause_seconds: float = 0.5

    @classmethod
    def from_environment(cls) -> Self:
        """Each from ``ORACLE_`` and its name in capitals, else its default.

        Raises:
            LimitError: a value cannot be used. The message never shows the address: it may hold a secret.

        """
        values = _read(cls, ones=("notice_margin",), but=("webhook_url", "pause_seconds"))
        for name in ("notice_cycles", "webhook_attempts", "webhook_timeout_seconds"):
            if name in values and values[name] <= 0:
                raise LimitError(
                    f"ORACLE_{name.upper()} is {values[name]}; set it to more than 0, or unset it"
                )
        return cls(**values, webhook_url=_address(os.environ.get(URL_VARIABLE, "").strip()))


def _address(text: str) -> str:
    if text == "":
        return ""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and parts.hostname is not None and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise LimitError(
            f"{URL_VARIABLE} is not an address to send to; write it like https://chat.example.org/hooks/name "
            "(http or https), or unset it to have changed decisions in the log"
        )
    return text


def _read(kind: Any, *, ones: tuple[str, ...], but: tuple[str, ...] = ()) -> dict[str, Any]:  # noqa: ANN401
    values: dict[str, Any] = {}
    for field in fields(kind):
        variable = f"ORACLE_{field.name.upper()}"
        text = os.environ.get(variable, "").strip()
        if field.name in but or text == "":
            continue
        whole = isinstance(field.default, int)
        most = 1.0 if field.name in ones else math.inf
        try:
            found = int(text) if whole else float(text)
        except ValueError:
            found = -1
        if not 0 <= found <= most or found == math.inf:
            number = (
                "a whole number from 0" if whole else f"a number from 0{'' if most == math.inf else ' to 1'}"
            )
            raise LimitError(f"{variable} is {text!r}; set it to {number}, or unset it for {field.default:g}")
        values[field.name] = found
    return values
