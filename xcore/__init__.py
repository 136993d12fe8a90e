"""The method: everything Eyrie computes. Knows neither Prefect nor MLflow."""
