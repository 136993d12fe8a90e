"""What is measured, against which peer. ``python -m benchmarks NAME [--quick] [--json]``."""
