"""How long a checkpoint takes: saving a training and going on from it, over writing as many bytes."""
