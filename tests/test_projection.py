"""Projection of a trend: momentum, decaying events, their blend and the words for it (R41-R55, R63, R190)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle_core import cycle
from oracle_core.config import OracleConfig, ProjectionConfig
from oracle_core.enums import EventDuration, TrendDirection, Window
from oracle_core.inputs import HistoryRows
from oracle_core.projection import (
    MacroEvent,
    compute_projection,
    compute_trend_momentum,
    ew_momentum,
    macro_rows,
    project_macro_decay,
    signed_strength,
    simple_momentum,
)
from oracle_core.records import TrendProjection, TrendSummary
from oracle_core.rules import rules_for
from tests.strategies import AS_OF_US, Document, Event, Exposure, World, no_history

AS_OF = datetime(2026, 3, 10, 12, tzinfo=UTC)
MACRO_OFF = OracleConfig().with_settings({"flags.macro_enabled": False})
NONE = HistoryRows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def trend(
    direction: TrendDirection = TrendDirection.NEGATIVE,
    strength: float = 0.4,
    confidence: float = 0.62,
    catalysts: tuple[str, ...] = (),
) -> TrendSummary:
    """A 7d trend of Entity-A."""
    return TrendSummary(
        entity_id="Entity-A",
        window=Window.SEVEN_DAYS,
        trend_direction=direction,
        trend_strength=strength,
        confidence=confidence,
        contradiction_score=0.0,
        dominant_catalysts=catalysts,
        generated_at=AS_OF,
    )


def event(impact: float, *, negative: bool = False, age_days: float = 3.0) -> MacroEvent:
    """A medium-term event with a side; ``impact`` is what it weighs at ``as_of`` age 0."""
    direction = TrendDirection.NEGATIVE if negative else TrendDirection.POSITIVE
    return MacroEvent(direction, impact, EventDuration.MEDIUM_TERM, age_days)


def lasting(impact: float, *, negative: bool = False) -> MacroEvent:
    """An event whose remaining impact after 7 days is exactly ``impact``: double impact, one half-life."""
    return event(2.0 * impact, negative=negative, age_days=0.0)


def projected(
    summary: TrendSummary,
    momentum: float = 0.0,
    events: tuple[MacroEvent, ...] = (),
    config: OracleConfig | None = None,
) -> TrendProjection:
    return compute_projection(summary, momentum, events, horizon_days=7.0, config=config)


# ---------------------------------------------------------------------------------------------- momentum


def test_r42_momentum_is_the_change_since_the_cycle_before() -> None:
    assert compute_trend_momentum(-0.40, [-0.30]) == pytest.approx(-0.10, abs=1e-12)


def test_r43_without_history_momentum_is_half_the_signed_strength() -> None:
    assert compute_trend_momentum(-0.40) == pytest.approx(-0.20, abs=1e-12)


def test_r63_only_the_newest_earlier_cycle_counts_whatever_the_order_of_the_rows() -> None:
    """Rows come from a database without an order; key 1 has no history and must not borrow from key 0."""
    history = HistoryRows(
        np.array([0, 0, 2, 0]), np.array([10, 30, 30, 20]), np.array([0.9, -0.30, 0.5, 0.7])
    )
    momentum = simple_momentum(np.array([-0.4, 0.2, 0.1]), history, np.full(3, np.nan), ProjectionConfig())
    assert momentum == pytest.approx([-0.10, 0.10, -0.40], abs=1e-12)


def test_g42_a_mixed_or_neutral_trend_has_no_signed_strength() -> None:
    codes = np.arange(4)
    assert list(TrendDirection) == ["positive", "negative", "mixed", "neutral"]
    assert signed_strength(codes, np.full(4, 0.4)).tolist() == [0.4, -0.4, 0.0, 0.0]


def test_g42_a_mixed_trend_projects_half_its_momentum_only() -> None:
    """Mixed 0.4 after -0.3: signed 0, momentum +0.3, projected +0.15, so positive (R44)."""
    momentum = compute_trend_momentum(0.0, [-0.3])
    assert momentum == pytest.approx(0.3, abs=1e-12)
    result = projected(trend(TrendDirection.MIXED), momentum)
    assert result.projected_strength == pytest.approx(0.15, abs=1e-12)
    assert result.projected_direction is TrendDirection.POSITIVE


def test_r190_weighted_momentum_of_the_worked_example() -> None:
    """Differences .05, .02, .04 newest first: .0381735; at sigma 2 % half of it (G19)."""
    earlier = [0.25, 0.23, 0.19]
    assert compute_trend_momentum(0.30, earlier, rule=ew_momentum) == pytest.approx(0.0381735, abs=1e-7)
    scaled = compute_trend_momentum(0.30, earlier, volatility_pct=2.0, rule=ew_momentum)
    assert scaled == pytest.approx(0.0190868, abs=1e-7)


@pytest.mark.parametrize("volatility_pct", [0.0, 0.5, 1.0])
def test_r190_a_quiet_market_never_amplifies_momentum(volatility_pct: float) -> None:
    """The floor of 1 % makes the factor exactly 1 from there down."""
    found = compute_trend_momentum(0.30, [0.25], volatility_pct=volatility_pct, rule=ew_momentum)
    assert found == pytest.approx(0.05, abs=1e-12)


def test_r190_fewer_than_two_cycles_fall_back_unscaled() -> None:
    """Half the signed strength even at 10 % volatility: there is no difference to scale."""
    with np.errstate(all="raise"):
        found = compute_trend_momentum(-0.5, volatility_pct=10.0, rule=ew_momentum)
    assert found == -0.25


def test_r190_at_most_ten_differences_count() -> None:
    """The eleventh difference back, however large, changes nothing; the tenth does."""
    flat = [0.1] * 10
    assert compute_trend_momentum(0.1, [*flat, -1.0], rule=ew_momentum) == 0.0
    assert compute_trend_momentum(0.1, [*flat[:9], -1.0], rule=ew_momentum) > 0.0


def test_r190_momentum_is_clamped_to_two() -> None:
    config = ProjectionConfig(vol_reference=1.0)
    assert compute_trend_momentum(1.0, [-1.0], volatility_pct=1.0, rule=ew_momentum, config=config) == 2.0
    assert compute_trend_momentum(-1.0, [1.0], volatility_pct=1.0, rule=ew_momentum, config=config) == -2.0


@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=12, unique=True))
def test_r206_steadily_rising_strengths_have_positive_momentum(values: list[float]) -> None:
    """Property 10 on its domain, two or more strictly increasing values, bearish ones too."""
    rising = sorted(values)
    gaps = np.diff(rising)
    if gaps.min() < 1e-9:
        return
    assert compute_trend_momentum(rising[-1], rising[-2::-1], rule=ew_momentum) > 0.0


# ------------------------------------------------------------------------------------------------- macro


@pytest.mark.parametrize(
    ("duration", "age", "horizon", "factor"),
    [
        (EventDuration.MEDIUM_TERM, 3.0, 7.0, 0.371499),
        (EventDuration.LONG_TERM, 3.0, 7.0, 0.793701),
        (EventDuration.SHORT_TERM, 3.0, 0.0, 0.125),
    ],
)
def test_r45_r46_impact_fades_to_the_end_of_the_horizon(
    duration: EventDuration, age: float, horizon: float, factor: float
) -> None:
    found = project_macro_decay([MacroEvent(TrendDirection.POSITIVE, 1.0, duration, age)], horizon)
    assert found.favourable == pytest.approx(factor, abs=5e-7)


def test_r47_remaining_impact_of_the_worked_example() -> None:
    """0.6 x severity 0.75, aged 3 d, over 7 d: .167174; the severity is inside the impact, once."""
    found = project_macro_decay([event(0.6 * 0.75)], 7.0)
    assert found.favourable == pytest.approx(0.167174, abs=5e-7)


def test_r48_both_sides_add_up_apart() -> None:
    found = project_macro_decay([lasting(0.167174), lasting(0.05), lasting(0.1, negative=True)], 7.0)
    assert (found.favourable, found.unfavourable) == pytest.approx((0.217174, 0.1), abs=1e-12)
    assert found.direction is TrendDirection.POSITIVE
    assert found.signed == pytest.approx(0.117174, abs=1e-12)


@pytest.mark.parametrize(
    ("favourable", "unfavourable", "direction", "signed"),
    [
        (0.217174, 0.1, TrendDirection.POSITIVE, 0.117174),
        (0.1, 0.217174, TrendDirection.NEGATIVE, -0.117174),
        (0.30, 0.25, TrendDirection.MIXED, 0.0),
        (0.25, 0.30, TrendDirection.MIXED, 0.0),
        (0.30, 0.2499, TrendDirection.POSITIVE, 0.0501),
        (0.30, 0.0, TrendDirection.POSITIVE, 0.30),
        (0.0, 0.30, TrendDirection.NEGATIVE, -0.30),
    ],
)
def test_r49_a_side_needs_a_fifth_more_than_the_other(
    favourable: float, unfavourable: float, direction: TrendDirection, signed: float
) -> None:
    found = project_macro_decay([lasting(favourable), lasting(unfavourable, negative=True)], 7.0)
    assert found.direction is direction
    assert found.signed == pytest.approx(signed, abs=1e-12)


@pytest.mark.parametrize("direction", [TrendDirection.MIXED, TrendDirection.NEUTRAL])
def test_r49_an_event_without_a_side_exists_but_weighs_nothing(direction: TrendDirection) -> None:
    found = project_macro_decay([MacroEvent(direction, 0.9, EventDuration.LONG_TERM, 1.0)], 7.0)
    assert (found.favourable, found.unfavourable, found.signed) == (0.0, 0.0, 0.0)
    assert found.direction is TrendDirection.NEUTRAL
    assert found.exists


def test_r49_without_events_the_outlook_is_neutral() -> None:
    found = project_macro_decay([], 7.0)
    assert found.direction is TrendDirection.NEUTRAL
    assert not found.exists


def test_an_event_without_impact_on_the_entity_does_not_exist_for_it() -> None:
    assert not project_macro_decay([event(0.0)], 7.0).exists


def test_the_order_of_events_never_decides_a_majority() -> None:
    """Float sums of these ten differ in the last bit by order; the exact sum does not."""
    sides = [0.1, 0.2, 0.3, 0.7, 0.9, 0.123456789]
    events = [lasting(x) for x in sides] + [lasting(x / 1.2, negative=True) for x in sides]
    assert project_macro_decay(events, 7.0) == project_macro_decay(events[::-1], 7.0)


# ------------------------------------------------------------------------------------------------- blend


def test_r44_momentum_enters_by_half() -> None:
    assert projected(trend(), -0.10).projected_strength == pytest.approx(0.45, abs=1e-12)
    assert projected(trend(), -0.20).projected_strength == pytest.approx(0.50, abs=1e-12)


def test_r50_the_blend_with_events_is_capped_at_two_fifths() -> None:
    """Own -.45 and macro +.35: share .4375, capped to .4; blended -.13; contribution 34.1463 % (G34)."""
    result = projected(trend(), -0.10, (lasting(0.35),))
    assert result.projected_strength == pytest.approx(0.13, abs=1e-12)
    assert result.macro_contribution_pct == pytest.approx(34.1463, abs=5e-5)


def test_r50_below_the_cap_the_weight_is_the_share_of_the_events() -> None:
    """T = .05 against .45: weight .1, blended .9 x -.45 + .1 x .05 = -.4."""
    result = projected(trend(), -0.10, (lasting(0.05),))
    assert result.projected_strength == pytest.approx(0.40, abs=1e-12)
    assert result.macro_contribution_pct == pytest.approx(100.0 * 0.005 / 0.41, abs=1e-9)


def test_r50_without_the_macro_layer_there_is_no_blend() -> None:
    result = projected(trend(), -0.10, (lasting(0.35),), MACRO_OFF)
    assert result.projected_strength == pytest.approx(0.45, abs=1e-12)
    assert result.macro_contribution_pct == 0.0
    assert not any(factor.startswith("Macro") for factor in result.driving_factors)


def test_g34_contested_events_damp_the_trend_without_a_side() -> None:
    """.30 v .25 is mixed: T = .55, weight .4, blended .6 x -.45 = -.27, contribution 0."""
    result = projected(trend(), -0.10, (lasting(0.30), lasting(0.25, negative=True)))
    assert result.projected_strength == pytest.approx(0.27, abs=1e-12)
    assert result.macro_contribution_pct == 0.0


def test_g34_nothing_at_all_projects_nothing() -> None:
    """T = 0 and e = 0 must not divide by zero: an event without a side and a neutral trend."""
    nothing = MacroEvent(TrendDirection.MIXED, 0.5, EventDuration.SHORT_TERM, 1.0)
    result = projected(trend(TrendDirection.NEUTRAL, 0.05), 0.0, (nothing,))
    assert result.projected_strength == 0.0
    assert result.macro_contribution_pct == 0.0


def test_a_faded_event_contributes_no_percentage() -> None:
    """Own part 0: weight .4 x .002 = .0008 < .001, though it is all there is; .003 counts in full."""
    still = trend(TrendDirection.NEUTRAL, 0.05)
    assert projected(still, 0.0, (lasting(0.002),)).macro_contribution_pct == 0.0
    assert projected(still, 0.0, (lasting(0.003),)).macro_contribution_pct == pytest.approx(100.0)
    quarter = OracleConfig().with_settings({"projection.min_macro_effect": 0.1})
    at = compute_projection(still, 0.0, (lasting(0.25),), horizon_days=7.0, config=quarter)
    assert at.macro_contribution_pct == 100.0, "exactly the least effect, .4 x .25, counts"
    assert at.driving_factors[0] == "Macro signals project positive impact (strength 0.250) over 7d"


def test_nothing_contributes_nothing_even_where_no_effect_is_too_small() -> None:
    every = OracleConfig().with_settings({"projection.min_macro_effect": 0.0})
    with np.errstate(all="raise"):
        found = compute_projection(trend(TrendDirection.NEUTRAL), 0.0, horizon_days=7.0, config=every)
    assert found.macro_contribution_pct == 0.0


def test_g34_the_macro_side_is_clamped_to_one() -> None:
    """Three whole impacts on one side: signed 1, not 1.5; blended .4 with e = 0."""
    result = projected(trend(TrendDirection.NEUTRAL, 0.05), 0.0, (lasting(0.5), lasting(0.5), lasting(0.5)))
    assert result.projected_strength == pytest.approx(0.40, abs=1e-12)
    three = tuple(lasting(0.5, negative=True) for _ in range(3))
    against = projected(trend(TrendDirection.NEUTRAL, 0.05), 0.0, three)
    assert against.projected_strength == pytest.approx(0.40, abs=1e-12)


def test_projected_strength_never_exceeds_one() -> None:
    assert projected(trend(strength=1.0), -2.0).projected_strength == 1.0


@pytest.mark.parametrize(
    ("current", "signed", "direction"),
    [
        (TrendDirection.NEGATIVE, 0.30, TrendDirection.POSITIVE),
        (TrendDirection.NEGATIVE, 0.29, TrendDirection.NEUTRAL),
        (TrendDirection.POSITIVE, -0.29, TrendDirection.NEUTRAL),
        (TrendDirection.POSITIVE, -0.30, TrendDirection.NEGATIVE),
        (TrendDirection.MIXED, 0.29, TrendDirection.MIXED),
        (TrendDirection.MIXED, -0.29, TrendDirection.MIXED),
        (TrendDirection.MIXED, -0.30, TrendDirection.NEGATIVE),
        (TrendDirection.NEUTRAL, 0.0, TrendDirection.NEUTRAL),
    ],
)
def test_g21_direction_by_a_band_of_fifteen_hundredths(
    current: TrendDirection, signed: float, direction: TrendDirection
) -> None:
    """With strength 0 the blend is half the momentum; inside the band a contested trend stays mixed."""
    result = projected(trend(current, 0.0), signed)
    assert result.projected_direction is direction
    assert result.diverges_from_current == (direction is not current)


def test_r53_divergence_of_the_worked_example() -> None:
    """Negative, blended -.13: neutral, so it diverges and says so last."""
    result = projected(trend(), -0.10, (lasting(0.35),))
    assert result.projected_direction is TrendDirection.NEUTRAL
    assert result.diverges_from_current
    assert (
        result.driving_factors[-1] == "Projected neutral direction diverges from the current negative trend"
    )


def test_r53_no_divergence_no_factor() -> None:
    result = projected(trend(), -0.10)
    assert not result.diverges_from_current
    assert not any("diverges" in factor for factor in result.driving_factors)


# -------------------------------------------------------------------------------------------- confidence


def test_r55_confidence_without_events_with_events_and_with_the_layer_off() -> None:
    assert projected(trend()).projected_confidence == pytest.approx(0.496, abs=1e-12)
    assert projected(trend(), 0.0, (event(0.1),)).projected_confidence == pytest.approx(0.546, abs=1e-12)
    off = projected(trend(), 0.0, (event(0.1),), MACRO_OFF)
    assert off.projected_confidence == pytest.approx(0.4464, abs=1e-12)


def test_g22_the_boost_needs_an_event_not_a_side() -> None:
    mixed = MacroEvent(TrendDirection.MIXED, 0.1, EventDuration.LONG_TERM, 400.0)
    assert projected(trend(), 0.0, (mixed,)).projected_confidence == pytest.approx(0.546, abs=1e-12)


def test_g22_confidence_is_clamped_to_one() -> None:
    config = OracleConfig().with_settings({"projection.macro_boost": 0.5})
    assert projected(trend(confidence=1.0), 0.0, (event(0.1),), config).projected_confidence == 1.0


@pytest.mark.parametrize(("confidence", "flagged"), [(0.37, True), (0.375, False)])
def test_r54_low_confidence_below_three_tenths(confidence: float, flagged: bool) -> None:
    assert projected(trend(confidence=confidence)).low_confidence is flagged
    whole = OracleConfig().with_settings({"projection.base_confidence": 1.0})
    assert not projected(trend(confidence=0.3), 0.0, (), whole).low_confidence, (
        "the threshold itself is enough"
    )


def test_r50_without_events_the_macro_side_of_a_row_is_zero() -> None:
    world = World(documents=(Document("d", "a"),), events=(Event("e"),))
    world = replace(world, exposures=(Exposure("b", "geo", "us", 1.0),))
    inputs, keys, config = world.inputs(), world.keys((Window.ONE_DAY,)), OracleConfig()
    frame = cycle.assemble_trends(
        cycle.score_signals(inputs, keys, AS_OF_US, config), inputs, AS_OF_US, config
    )
    found = cycle.project_trends(frame, inputs, no_history(), AS_OF_US, config).rows
    assert found.has_macro_events.tolist() == [False, True]
    assert found.macro_signed[0] == 0.0
    assert found.macro_signed[1] > 0.0


def test_an_event_that_is_known_before_it_occurs_has_no_age() -> None:
    world = World(
        events=(Event("e", age_hours=-1.0, known_late_hours=-2.0),),
        exposures=(Exposure("a", "geo", "us", 1.0),),
    )
    config = OracleConfig()
    rows = macro_rows(world.inputs(), world.keys((Window.ONE_DAY,)), AS_OF_US, config, rules_for(config))
    assert rows.age_days.tolist() == [0.0]


# ------------------------------------------------------------------------------------------------- words


def test_r51_momentum_in_words() -> None:
    assert projected(trend(), -0.10).driving_factors == (
        "Negative momentum (-0.100) in recent trend strength",
    )
    up = projected(trend(TrendDirection.POSITIVE), 0.15)
    assert up.driving_factors == ("Positive momentum (+0.150) in recent trend strength",)


def test_r51_macro_in_words() -> None:
    result = projected(trend(), 0.0, (lasting(0.35, negative=True),))
    assert result.driving_factors == ("Macro signals project negative impact (strength 0.350) over 7d",)


def test_r51_contested_events_are_named_because_they_damp() -> None:
    result = projected(trend(), 0.0, (lasting(0.30), lasting(0.25, negative=True)))
    assert result.driving_factors[0] == "Macro signals project mixed impact (strength 0.000) over 7d"


def test_r51_contested_events_are_no_factor_where_there_is_nothing_to_damp() -> None:
    """Strength .2 and momentum -.4 cancel: the own part .2 + .5 x -.4 is 0."""
    result = projected(
        trend(TrendDirection.POSITIVE, 0.2), -0.4, (lasting(0.30), lasting(0.25, negative=True))
    )
    assert not any(factor.startswith("Macro") for factor in result.driving_factors)


def test_r51_at_most_three_catalysts_most_dominant_first() -> None:
    result = projected(trend(catalysts=("legal", "m_and_a", "dividend", "regulatory")))
    assert result.driving_factors == (
        "Upcoming catalyst: legal",
        "Upcoming catalyst: m_and_a",
        "Upcoming catalyst: dividend",
    )


def test_r51_order_momentum_macro_catalyst_divergence() -> None:
    result = projected(trend(catalysts=("legal",)), -0.10, (lasting(0.35),))
    assert [factor.split(" ")[0] for factor in result.driving_factors] == [
        "Negative",
        "Macro",
        "Upcoming",
        "Projected",
    ]


def test_r52_without_any_factor_one_says_that_the_trend_continues() -> None:
    assert projected(trend()).driving_factors == ("Baseline continuation of the current negative trend",)


@pytest.mark.parametrize("dust", [1e-17, -1e-17, 0.0004])
def test_r52_dust_is_no_factor(dust: float) -> None:
    """Otherwise a last bit would turn a sentence on and off, and it would read +0.000."""
    assert projected(trend(), dust).driving_factors == (
        "Baseline continuation of the current negative trend",
    )


def test_r51_a_faded_event_is_no_factor() -> None:
    result = projected(trend(), 0.0, (lasting(1e-4),))
    assert result.driving_factors == ("Baseline continuation of the current negative trend",)


def test_a_projection_carries_its_window_and_the_time_of_its_trend() -> None:
    result = projected(trend())
    assert (result.projection_horizon, result.computed_at) == (Window.SEVEN_DAYS, AS_OF)
