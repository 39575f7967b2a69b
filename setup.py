"""Ships data/ inside the wheel as dlviz/data; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["dlviz*"]), "dlviz.data"],
    package_dir={"dlviz.data": "data"},
    package_data={"dlviz.data": ["**/*"], "dlviz.widgets": ["static/**/*"]},
)
