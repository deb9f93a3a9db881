"""Values of records as they are stored: one value, whole columns, transforms, and rows of a type."""
