"""The training room: photographs -> scenes -> extractor -> matcher -> the package's safetensors. Only this package uses PyTorch."""
