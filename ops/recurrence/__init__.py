"""RNN, GRU and LSTM, whatever the framework: a formula for a step of each, and what all steps share"""
