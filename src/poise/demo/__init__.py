"""The demo: five jobs with real parts on this machine, a parent that looks after them, and a strip that guides."""
