"""The launching process: it starts the ranks, watches over them and takes in what they leave."""
