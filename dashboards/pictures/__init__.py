"""Pictures that need nothing else: profiles, rooflines"""
