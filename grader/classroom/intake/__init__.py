"""Collect the submissions of a class: folders, archives, repositories, roster."""
