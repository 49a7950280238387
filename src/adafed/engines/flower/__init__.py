"""Flower as an engine: any rule as a strategy, a client that tells what rules need, experiments on Flower."""
