"""AdaFed on handwritten digits, as a Flower app."""
