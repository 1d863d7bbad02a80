"""Poise decides which member holds what, moves as little as possible, and hands over without two owners."""

__version__ = "0.1.0"
