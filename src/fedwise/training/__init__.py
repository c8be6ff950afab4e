"""Training: the chosen federation, and every baseline it must beat."""
