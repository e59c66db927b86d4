"""A network in stages: cut into pieces by hand or balanced, each of which an executor of its own computes"""
