"""The orchestrated half of oracle: storage, ingestion, assets, schedules and the command line."""
