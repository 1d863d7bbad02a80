"""The server: HTTP API, events, metrics and protection, over one facade of all jobs."""
