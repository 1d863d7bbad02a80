"""Worlds made of seeded events that drive the real planners."""
