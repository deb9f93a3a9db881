"""From the representation of a query and what is known of its data to the order in which operators run."""
