"""Machines that a run is paced by or simulated on: devices, links, topologies."""

from dlviz.machine.machine import Chance, Device, Machine, classroom
from dlviz.machine.topology import Link, Path, Topology

__all__ = ["Chance", "Device", "Link", "Machine", "Path", "Topology", "classroom"]
