"""The cases of what is no scheme: attention, masks, latent attention."""
