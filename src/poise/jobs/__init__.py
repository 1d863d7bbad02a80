"""One file or folder a job: it turns a document of its kind into facts, decides, carries out, and says the result."""
