"""How soon a training goes on after a kill: d5ray beside torchft, Ray Train and hivemind"""
