"""From the files people have to one validated dataset on disk."""
