# %%
import tensorflow as tf
from posattn.ports.tensorflow import PositionalEncoding

layer = PositionalEncoding(32)
P = layer(tf.zeros((1, 60, 32)))[0]
print("row 1, columns 6 to 9:", P[1, 6:10].numpy().round(6))
