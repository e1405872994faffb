"""What is made from the run folder of a class: grades, files for a gradebook, pages."""
