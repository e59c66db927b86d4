"""The laboratory's commands of `d5ray`, one a module"""
