"""Single edits of a student's file, to find by trial which line is wrong."""
