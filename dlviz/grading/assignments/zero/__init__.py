"""ZeRO: the optimizer's states, the gradients and the weights of a network, sharded over ranks."""

TITLE, LAB = "Less in memory: ZeRO", "11"
