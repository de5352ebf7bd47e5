"""Small decoders, trained with each scheme from several seeds, and what they have learned."""
