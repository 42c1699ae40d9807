"""Which keys a run takes: a batch, then written keys, then its partitions, then everything known."""

from __future__ import annotations

import dagster as dg
import pytest

from oracle_dagster.partitions import (
    ENTITIES,
    KEYS,
    all_keys,
    batch_tags,
    choose_keys,
    key_text,
    order_keys,
    register_entities,
    split_key,
)

KNOWN = ["B", "A"]


def test_a_key_reads_entity_then_window() -> None:
    """dagster.md 2: the orchestrator joins the dimensions in the order of their names."""
    assert [d.name for d in KEYS.partitions_defs] == ["entity", "window"]
    assert dg.MultiPartitionKey({"window": "7d", "entity": "A"}) == "A|7d" == key_text(("A", "7d"))
    assert ENTITIES.name == "entity"


def test_a_key_text_can_be_taken_apart_again() -> None:
    assert split_key("Ä ß'%|30d") == ("Ä ß'%", "30d")
    assert split_key("no window") == ("no window", "")


def test_windows_are_ordered_from_the_shortest_to_the_longest() -> None:
    assert all_keys(KNOWN)[:6] == [
        ("A", "intraday"),
        ("A", "1d"),
        ("A", "7d"),
        ("A", "30d"),
        ("A", "90d"),
        ("B", "intraday"),
    ]
    assert order_keys([("B", "7d"), ("A", "90d"), ("B", "7d")]) == [("A", "90d"), ("B", "7d")]


def test_a_batch_wins_over_everything_because_its_run_carries_the_range_of_one_key() -> None:
    chosen = choose_keys(batch=[("B", "7d"), ("A", "1d")], inline=["A|90d"], partitions=["A|1d"], known=KNOWN)
    assert chosen.keys == [("A", "1d"), ("B", "7d")]
    assert chosen.unknown == []


def test_written_keys_win_over_partitions() -> None:
    assert choose_keys(batch=None, inline=["A|90d"], partitions=["A|1d"], known=KNOWN).keys == [("A", "90d")]


def test_partitions_count_where_nothing_is_written() -> None:
    chosen = choose_keys(batch=None, inline=[], partitions=["B|1d", "A|7d"], known=KNOWN)
    assert chosen.keys == [("A", "7d"), ("B", "1d")]


def test_an_empty_range_is_not_everything() -> None:
    """A reversed range has no keys; it must not quietly become a run over all of them."""
    assert choose_keys(batch=None, inline=[], partitions=[], known=KNOWN).keys == []


def test_a_run_that_names_nothing_takes_all_known_keys() -> None:
    assert choose_keys(batch=None, inline=[], partitions=None, known=KNOWN).keys == all_keys(KNOWN)
    assert choose_keys(batch=None, inline=[], partitions=None, known=[]).keys == []


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("C|7d", "no entity 'C' in this cycle"),
        ("a|7d", "no entity 'a' in this cycle"),
        ("A|2d", "no window '2d'; a key is entity|window with one of intraday, 1d, 7d, 30d, 90d"),
        ("A", "no window ''"),
    ],
)
def test_an_unknown_key_is_named_with_its_reason(key: str, reason: str) -> None:
    chosen = choose_keys(batch=None, inline=["A|7d", key], partitions=None, known=KNOWN)
    assert chosen.keys == [("A", "7d")]
    assert len(chosen.unknown) == 1
    assert chosen.unknown[0].reason.startswith(reason)


def test_a_batch_carries_the_range_of_one_of_its_keys() -> None:
    """dagster.md 3: without partition tags, later subsets of the chain could not place their inputs."""
    assert batch_tags("id", [("B", "7d"), ("A", "1d")]) == {
        "dagster/asset_partition_range_start": "B|7d",
        "dagster/asset_partition_range_end": "B|7d",
        "oracle/batch": "id",
    }


def test_only_new_entities_are_registered_in_their_order() -> None:
    """The orchestrator asks once per key whether it exists, so known ones must not be sent again."""
    with dg.DagsterInstance.ephemeral() as instance:
        many = [f"E{n:04d}" for n in range(2500)]
        assert register_entities(instance, ["E0003", "Z"]) == ["E0003", "Z"]
        assert register_entities(instance, many) == [name for name in many if name != "E0003"]
        assert register_entities(instance, many) == []
        assert len(instance.get_dynamic_partitions("entity")) == 2501
