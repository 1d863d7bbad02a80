"""How to get there safely: what makes a move wait, and how one item changes hands."""
