"""`python -m poise` is `poise`."""

from poise.cli.main import main

if __name__ == "__main__":
    main()
