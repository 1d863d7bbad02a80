"""What a member runs: its lease, what it holds, and how it fences itself before a lease can end."""
