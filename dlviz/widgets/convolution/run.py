"""Runs."""
RUN = 8
def run(values, progress):
    raise NotImplementedError
