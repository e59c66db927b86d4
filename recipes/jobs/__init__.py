"""What recipes do other than one training: trainings side by side, contests, studies of scale."""
