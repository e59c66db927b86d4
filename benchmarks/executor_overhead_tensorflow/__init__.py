"""What d5ray's executor of a network costs under TensorFlow: the Keras model written by hand beside it."""
