"""What an update costs: d5ray's rules on the flat buffer beside torch.optim's own on the tensors."""
