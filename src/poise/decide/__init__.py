"""Pure functions: facts in, plan out. No clock, I/O, randomness, logging or globals: time and seed are arguments."""
