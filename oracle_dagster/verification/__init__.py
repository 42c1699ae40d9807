"""Is what is stored what the rules make of what was read? Recomputation, receipts, the leak prober."""
