"""What another configuration would change, in decisions, and how to make it so."""
