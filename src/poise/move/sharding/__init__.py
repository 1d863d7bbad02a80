"""What a sharder may write next: facts in, writes out. Children first, the root is the commit."""
