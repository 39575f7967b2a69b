"""A convolution over an image whose rows are cut over ranks: halos, forward and backward."""

TITLE, LAB = "Rows of others: the halo exchange", "07"
