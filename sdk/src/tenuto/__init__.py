"""tenuto."""
