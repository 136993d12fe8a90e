"""The Python door: estimators with scikit-learn's habits over every model and imputer. No pipeline step uses it."""
