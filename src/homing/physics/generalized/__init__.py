"""The generalized pipeline: joint coordinates with a mass matrix, contacts and limits as forces that only push."""
