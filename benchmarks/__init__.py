"""What Poise costs, as ratios within one run: `make bench`."""
