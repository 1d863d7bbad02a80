"""The sharder: it gives the objects of a ring to the instances of one controller, and moves them without two owners."""
