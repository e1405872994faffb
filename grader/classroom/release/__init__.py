"""Make the release for students and check that it holds no answer; imports no torch."""
