"""Pipelines: a network's stages on several places, micro-batches through them by a schedule"""
