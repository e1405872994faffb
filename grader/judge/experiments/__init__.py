"""Causes found by experiment: the same call with one thing changed, and no look at the text of the file."""
