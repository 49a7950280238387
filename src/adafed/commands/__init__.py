"""The commands of `adafed`, by subject."""
