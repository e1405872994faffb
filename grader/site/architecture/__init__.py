"""The page on the grader's architecture: rooms, imports, interfaces, and the calls of a graded run."""
