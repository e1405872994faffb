"""`make survey`: what a GPU says of itself, and what is measured on it."""
