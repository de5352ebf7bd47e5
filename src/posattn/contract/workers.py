"""Checks of a sequence that is spread over several workers."""

from posattn.contract.arrays import mask as _mask
from posattn.contract.numbers import integer
from posattn.contract.positions import attention_positions


def balanced(n, workers):
    """Return the numbers of tokens and of workers; each worker gets two pieces of the sequence."""
    n, workers = integer("n", n), integer("workers", workers, least=1)
    if n % (2 * workers):
        raise ValueError(f"n must be a multiple of 2 * workers = {2 * workers}, got {n}")
    return n, workers


def shards(across, n_q, n_k):
    """Return the number of workers, among which queries and keys are divided evenly."""
    across = integer("across", across, least=1)
    if n_q % across or n_k % across:
        raise ValueError(f"across must divide n_q = {n_q} and n_k = {n_k}, got {across}")
    return across


def shard_positions(query_positions, key_positions, batch, n_q, n_k):
    """Reject positions that do not belong to the queries and keys of a worker."""
    attention_positions(query_positions, key_positions, batch, n_q, n_k)
    if query_positions is None and key_positions is not None and n_q != n_k:
        raise ValueError(
            "query_positions must be given where key_positions are, unless each query is a key, "
            f"got {n_q} queries and {n_k} keys"
        )


def shard_mask(value, query_shape, n_k):
    """Reject what is neither a mask of the keys of a worker nor a function of positions."""
    if value is None or callable(value):
        return
    if not hasattr(value, "shape"):
        raise TypeError(
            "mask must be a bool array of keys or a function (query_positions, key_positions), "
            f"got {type(value).__name__}"
        )
    _mask(value, (*query_shape[:-2], 1, n_k))


def shard_bias(value):
    """Reject a bias whose tiles cannot be computed one by one, wherever their keys are."""
    if hasattr(value, "shape"):
        raise TypeError(
            "bias must be a function of positions where keys are spread over workers, "
            f"got an array of shape {tuple(value.shape)}"
        )
    kind = type(value).__name__
    if getattr(value, "needs_all_keys", hasattr(value, "scores")):
        raise ValueError(
            f"bias must score each query and key on their own, got {kind}, which needs all keys"
        )
    if hasattr(value, "scores") and hasattr(value, "values"):
        raise ValueError(
            f"bias must change only the scores, got {kind}, which also changes the values"
        )
    if not (callable(value) or hasattr(value, "scores")):
        raise TypeError(
            "bias must be a function (query_positions, key_positions) or have a method scores, "
            f"got {kind}"
        )


def shard_gradient(reached):
    """Reject a bias with a gradient that would be lost on the way."""
    if not reached:
        raise ValueError(
            "bias must have its gradient in the parameters or buffers of a module, got a "
            "function or module of positions whose result requires grad by something else"
        )


def first_derivative(recorded):
    """Reject a backward pass that is itself to be differentiated."""
    if recorded:
        raise ValueError(
            "create_graph must be False where ring_attention is differentiated, got True"
        )


def alike(calls):
    """Reject calls of several workers, described in words, that are not the same."""
    for worker, call in enumerate(calls):
        if call != calls[0]:
            raise ValueError(
                f"all workers must make the same call to ring_attention, got ({calls[0]}) on worker 0 and "
                f"({call}) on worker {worker}"
            )


def group(across, known, axes=1):
    """Reject what does not name the processes among which this one is; a mesh has `axes`."""
    kind = (
        "across must be a process group of this process, a DeviceMesh of one axis, or None"
    )
    if axes != 1:
        raise ValueError(f"{kind}, got a DeviceMesh of {axes} axes")
    if not known:
        raise TypeError(f"{kind}, got {type(across).__name__}")


def ring_of_processes(started):
    """Reject a process that has not joined others."""
    if not started:
        raise ValueError(
            "across must name processes that work together, got no process group: "
            "call torch.distributed.init_process_group first"
        )


def mesh_axis(across, axes):
    """Reject what is no axis of the mesh over which JAX has spread a program."""
    if across not in axes:
        known = ", ".join(map(repr, axes)) or "none: call it inside jax.shard_map"
        raise ValueError(f"across must name an axis of the mesh ({known}), got {across!r}")


def same_everywhere(function):
    """Reject a function with gradients that JAX would sum over devices again and again."""
    if function:
        raise ValueError(
            "bias must be a pytree of its arrays, such as jax.tree_util.Partial, where jax.shard_map has "
            "check_vma, got a function that encloses an array which is the same on several devices"
        )
