"""The command line in this process, for the tests that need many commands and not many processes."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from oracle_dagster import cli


@dataclass(frozen=True)
class Result:
    """What a command did."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever it printed
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def oracle(*arguments: str) -> Result:
    """Run a command in this process, which has imported everything already."""
    raw = io.BytesIO()
    out, err = io.TextIOWrapper(raw, encoding="utf-8", write_through=True), io.StringIO()
    before, environment = sys.argv, dict(os.environ)
    sys.argv = ["oracle", *arguments]
    code: object = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = before
        os.environ.clear()
        os.environ.update(environment)
    out.flush()
    assert code is None or isinstance(code, int)
    assert "\x1b" not in err.getvalue(), "progress and colours belong to a terminal"
    printed = raw.getvalue()
    return Result(code or 0, printed.decode("utf-8", errors="replace"), err.getvalue(), printed)
