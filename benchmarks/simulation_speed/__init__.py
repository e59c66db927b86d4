"""What a simulation costs in real time: beside the gradients that it computes, and with a thousand agents."""
