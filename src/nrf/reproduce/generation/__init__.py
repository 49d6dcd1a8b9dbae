"""Images of CIFAR-10 generated, and the interpolation."""
