"""The speculative worker with plain rounds: tiers, the plain round, lazy upkeep."""
