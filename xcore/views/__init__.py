"""What people see of an artifact, by its kind: metrics, tables and plots."""
