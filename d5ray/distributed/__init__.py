"""Level 3: communicators, topologies, compression, distributed optimizers, pipelines, and their simulation"""
