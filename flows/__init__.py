"""The flows: chains of tasks that are run by a schedule, by the Prefect UI or by ``eyrie``."""
