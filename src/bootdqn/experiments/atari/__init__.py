"""What the Atari experiments share."""
