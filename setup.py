"""Ships data/ inside the wheel as dlviz/data; everything else is in pyproject.toml.

A package_dir of its own for the data would have an editable install find the package by a hook,
which is asked after the path: in the folder that holds a clone called dlviz, that folder would be
what `import dlviz` finds. So the data is copied, and an editable install is the clone's path.
"""

from pathlib import Path
from shutil import copytree

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py


class WithData(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:
            copytree("data", Path(self.build_lib, "dlviz", "data"), dirs_exist_ok=True)


setup(
    cmdclass={"build_py": WithData},
    packages=find_packages(include=["dlviz*"]),
    package_dir={"": "."},
    package_data={"dlviz.widgets": ["static/**/*"], "dlviz.grading.questions": ["*.toml"]},
)
