"""A class of students: intake, grading, gradebook, platforms, release."""
