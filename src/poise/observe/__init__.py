"""What is true? Facts as they were seen, judged by the observer's own clock."""
