"""Makes the README's picture: one step of data parallel on four ranks. Run it again after a change:
python docs/timeline.py
"""

from pathlib import Path

from PIL import Image

import dlviz

PICTURE = Path(__file__).with_suffix(".png")
TITLE = "One training step on four ranks: buckets of gradients travel while backward goes on"

images, labels = dlviz.datasets.digits("train")
batches = list(dlviz.datasets.batches(images, labels, batch=64, steps=4))
run = dlviz.launch(
    dlviz.parallel.data.train,
    ranks=4,
    machine=dlviz.machine.classroom(4),
    args=(dlviz.models.MLP((64, 128, 128, 10)), batches),
    kwargs={"bucket_bytes": 40_000},
)
dlviz.viz.timeline(run.trace, step=2, title=TITLE).write_image(PICTURE, width=1200)
few = Image.open(PICTURE).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
few.save(PICTURE, optimize=True)
