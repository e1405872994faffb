"""Show a graded run: terminal, JSON, JUnit, HTML page."""
