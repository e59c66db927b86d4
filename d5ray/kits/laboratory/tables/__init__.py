"""What the laboratory prints: criteria and times of contenders, calls, studies, profiles"""
