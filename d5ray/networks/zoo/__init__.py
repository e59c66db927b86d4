"""Networks by name: convolutional, residual, recurrent, transformers"""
