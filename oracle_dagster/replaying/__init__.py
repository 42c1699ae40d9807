"""Replay of history: past cycles, each with the knowledge of its day, and how good they were."""
