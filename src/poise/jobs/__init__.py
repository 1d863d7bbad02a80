"""One file a job: it turns a document of its kind into facts, decides, and says the result."""
