"""The steps of the pipeline: artifacts in, a call into xcore, an artifact out."""
