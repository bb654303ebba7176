"""Gray views of free indoor 3D scenes, with exact depth and pose."""
