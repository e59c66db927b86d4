"""Micro-batches: layers and whole networks in parts of the mini-batch, so that they need less memory."""
