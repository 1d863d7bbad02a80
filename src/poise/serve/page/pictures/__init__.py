"""Pictures of jobs: frozen values in, SVG text out. Nothing here asks, waits or remembers."""
