"""The nodes of a cluster: their shape, their network, and room for actors on them"""
