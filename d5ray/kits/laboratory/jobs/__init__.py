"""Jobs of recipes other than one training: trainings side by side, contests, studies of scale"""
