"""The cost of the node itself, measured over DDS."""
