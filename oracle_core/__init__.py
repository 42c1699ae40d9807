"""Pure mathematics of the product: arrays and frozen objects in, arrays and frozen objects out."""
