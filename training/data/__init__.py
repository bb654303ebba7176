"""Free photographs and textures to train on: where they come from, which are usable, how they are packed."""
