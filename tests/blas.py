"""How many threads BLAS is set to use."""

from threadpoolctl import threadpool_info


def blas_threads() -> set[int]:
    """Of the libraries that numpy and scipy call. That of faiss is another one, which counts for each thread apart."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas" and "faiss" not in pool["filepath"]]
    return {int(pool["num_threads"]) for pool in pools}
