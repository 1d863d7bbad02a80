"""Assignment of new objects in the request that creates them: an optional mutating webhook, which never denies."""
