"""The assets: inputs, configuration, source accuracy and the chain of decisions."""
