"""What drives an agent through an environment."""
