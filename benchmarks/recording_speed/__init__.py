"""What measuring costs: a recorded value, rows into the store, and a query over ten million of them."""
