"""The functions of values: what they take and give, and the types of operands."""
