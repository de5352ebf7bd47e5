"""What models are made of: layers that combine attention with a scheme of positions."""
