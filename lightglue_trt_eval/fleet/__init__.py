"""Many recordings, evaluated on a Dask cluster."""
