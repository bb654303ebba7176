"""One evaluation per recording on a Dask cluster, and what all of them say together."""
