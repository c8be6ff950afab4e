"""A Flower app on images that chooses its federation by features."""
