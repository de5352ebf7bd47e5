"""Which libraries are asked, and how each is installed on a machine without a GPU.

Engines that read ONNX are asked with our bundle, `nox -s record -- bundle`.
"""

TORCH = ["torch==2.13.0"]  # first: a newer one brings gigabytes for a GPU
OURS = ["numpy", "jaxtyping"]
# what pip installs, in steps; the module has the name with underscores
LIBRARIES = {
    "diffusers": [TORCH, [*OURS, "diffusers"]],
    "equinox": [[*OURS, "jax", "equinox"]],
    "flax": [[*OURS, "jax", "flax"]],
    "jax": [[*OURS, "jax"]],
    "keras-hub": [[*OURS, "keras-hub"]],
    "mlx": [[*OURS, "mlx[cpu]"]],
    "mlx-lm": [[*OURS, "mlx[cpu]"], ["mlx-lm"]],
    "rotary-embedding-torch": [TORCH, [*OURS, "rotary-embedding-torch"]],
    "timm": [TORCH, [*OURS, "timm"]],
    "torch": [TORCH, OURS],
    "transformers": [TORCH, [*OURS, "transformers"]],
    "xllamacpp": [[*OURS, "xllamacpp"]],
    "x-transformers": [TORCH, [*OURS, "x-transformers"]],
}
