"""Where the facts live: one port, and the stores behind it."""
