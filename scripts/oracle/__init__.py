"""Expected values of operations, computed by PyTorch."""
