"""The training room: photographs -> scenes -> extractor -> matcher -> the package's safetensors. PyTorch lives here alone."""
