"""The page on the grader's architecture: rooms and imports, interfaces, and a graded run's way."""
