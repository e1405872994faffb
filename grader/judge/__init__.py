"""Decide: correctness, speed, generated code, diagnosis and scores."""
