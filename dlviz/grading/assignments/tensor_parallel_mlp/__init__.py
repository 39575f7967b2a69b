"""A tensor-parallel MLP, with f and g."""

TITLE, LAB = "tensor-parallel MLP", "06"
