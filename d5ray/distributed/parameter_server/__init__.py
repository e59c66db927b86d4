"""Parameter servers: parameters in shards, what makes a read consistent, and how pushes become updates"""
