"""Times: of a frame's stages, of the node over DDS, and of boards as their data sheets predict them."""
