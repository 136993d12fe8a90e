"""Running the installation: servers, worker, database and deployments."""
