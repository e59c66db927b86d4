"""What happens around a network's execution: plans, checks of what is given, and events"""
