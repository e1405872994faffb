"""What the course shows: interactive figures, notebooks, tables in READMEs."""
