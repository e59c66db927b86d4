"""How quickly agents push and pull: d5ray's parameter server against two that Ray users write."""
