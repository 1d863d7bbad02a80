"""The rings of a cluster on the page: read from an operator's own state, and never changed from here."""
