"""The plot of a posterior: readable at a glance, small, and only where there is room for it."""

from __future__ import annotations

import math

import dagster as dg
import pytest

from oracle_dagster import plots
from oracle_dagster.reporting import posterior_plot, readable

NUMBERS: dict[str, object] = {"alpha": 8.3, "beta": 3.1, "p_bull": 0.9945, "direction_threshold": 0.15}


def test_density_thresholds_and_probability_stand_where_they_belong() -> None:
    """61 columns: ½ is the middle one, ½ ± 0.15 are columns 21 and 39, the peak 7.3/9.4 is column 47."""
    drawn = plots.posterior(alpha=8.3, beta=3.1, p_bull=0.9945, threshold=0.15)
    assert drawn.splitlines() == [
        "                     ┊                 ┊  ▂▅▆▇███▇▅▃",
        "                     ┊                 ▃▅████████████▄",
        "                     ┊              ▂▅████████████████▇▁",
        "                     ┊           ▂▄▇████████████████████▄",
        "                     ┊       ▂▃▅█████████████████████████▆▁",
        "                  ▁▁▁▂▂▃▃▄▅▇███████████████████████████████▄▁",
        "─────────────────────┴─────────────────┴────────────────────▲",
        "0                  0.35       ½      0.65                   1",
        "      negative             neutral           positive",
        "▲ P_bull 0.995   evidence Beta(α 8.3, β 3.1)",
    ]


def test_without_evidence_every_share_is_as_likely() -> None:
    lines = plots.posterior(alpha=1.0, beta=1.0, p_bull=0.5, threshold=0.15).splitlines()
    assert lines[:6] == ["█" * 61] * 6
    assert lines[6][30] == "▲"


def test_a_peak_narrower_than_a_column_is_seen() -> None:
    lines = plots.posterior(alpha=1e6, beta=1e6, p_bull=0.5, threshold=0.15).splitlines()
    assert [line.count("█") for line in lines[:6]] == [1] * 6
    assert lines[0][30] == "█"


@pytest.mark.parametrize("alpha", [1.0, 1.001, 4.0, 1e12, 1e300])
@pytest.mark.parametrize("beta", [1.0, 7.5, 1e300])
@pytest.mark.parametrize("p_bull", [0.0, 0.35, 1.0])
@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5])
def test_every_posterior_gives_a_plot_of_bounded_size(
    alpha: float, beta: float, p_bull: float, threshold: float
) -> None:
    drawn = plots.posterior(alpha=alpha, beta=beta, p_bull=p_bull, threshold=threshold)
    assert len(plots.as_markdown(drawn).encode()) <= plots.MAX_BYTES
    assert max(map(len, drawn.splitlines())) <= 61
    assert "█" in drawn.splitlines()[0]
    assert "▲" in drawn.splitlines()[6]


@pytest.mark.parametrize(
    "wrong", [{"alpha": 0.9}, {"beta": math.nan}, {"p_bull": 1.1}, {"threshold": 0.6}, {"alpha": math.inf}]
)
def test_numbers_that_are_no_posterior_are_refused_by_name_and_range(wrong: dict[str, float]) -> None:
    numbers = {"alpha": 2.0, "beta": 2.0, "p_bull": 0.5, "threshold": 0.15} | wrong
    with pytest.raises(ValueError, match=r"alpha and beta must be at least 1, p_bull in \[0, 1\]"):
        plots.posterior(**numbers)


def test_only_trends_of_small_runs_carry_it_and_others_say_why_not() -> None:
    drawn = posterior_plot("trend_windows", NUMBERS, 50)
    assert str(drawn["posterior"]).startswith("```text\n  ")
    assert isinstance(readable(drawn)["posterior"], dg.MarkdownMetadataValue)
    assert posterior_plot("trend_windows", NUMBERS, 51) == {
        "posterior": "not drawn in runs of more than 50 keys"
    }
    assert posterior_plot("recommendations", NUMBERS, 1) == {}
    assert posterior_plot("trend_windows", NUMBERS | {"alpha": None}, 1) == {}
    assert posterior_plot("trend_windows", {"strength": 0.2}, 1) == {}


def test_a_history_has_a_column_per_cycle_and_its_bars_stand_on_the_side_of_their_sign() -> None:
    drawn = plots.history(
        strength=[0.0, 0.1, 0.5, 1.0, -0.4, -1.0],
        confidence=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
        began="2026-03-01 12:00",
        ended="2026-03-10 12:00",
    )
    assert drawn.splitlines() == [
        "+1    █",
        "    ▄██",
        " 0 ──────",
        "       ██",
        "-1      █",
        "   ▁▂▃▅▆█ confidence",
        "strength -1.000, confidence 1.000",
        "6 cycles, 2026-03-01 12:00 to 2026-03-10 12:00",
    ]


def test_a_history_is_of_bounded_size_and_shows_the_newest_cycles() -> None:
    strength = [-1.0] * 1_000 + [0.25] * 40
    drawn = plots.history(strength=strength, confidence=[1.0] * 1_040, began="x" * 16, ended="y" * 16)
    assert len(drawn.encode()) <= plots.MAX_BYTES
    assert drawn.splitlines()[1] == "   " + "▄" * 36
    assert "36 cycles" in drawn
    assert max(map(len, drawn.splitlines())) <= 50, "what is wider is cut off in the user interface"
    assert "1 cycle, x" in plots.history(strength=[0.5], confidence=[0.5], began="x", ended="x")
    with pytest.raises(ValueError, match="no history of 0 strengths"):
        plots.history(strength=[], confidence=[], began="x", ended="x")
