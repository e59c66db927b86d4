"""Groups of agents: where they meet, who belongs to one, who comes late"""
