"""What a released model says, and says when something is wrong in it."""
