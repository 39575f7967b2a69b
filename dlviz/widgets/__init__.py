"""Front ends: controls and live pictures of a Trace, in a notebook or on a saved page."""

from dlviz.widgets.collectives import CollectiveExplorer
from dlviz.widgets.compression import CompressionExplorer
from dlviz.widgets.consistency import ConsistencyExplorer
from dlviz.widgets.convolution import ConvolutionExplorer
from dlviz.widgets.federated import FederatedExplorer
from dlviz.widgets.memory import MemoryExplorer
from dlviz.widgets.mesh import MeshExplorer
from dlviz.widgets.placement import PlacementExplorer
from dlviz.widgets.plans import PlanExplorer
from dlviz.widgets.player import MessagePlayer
from dlviz.widgets.scaling import ScalingExplorer
from dlviz.widgets.schedules import ScheduleExplorer
from dlviz.widgets.schedules.levels import ScheduleLevels
from dlviz.widgets.tensor import TensorExplorer
from dlviz.widgets.timeline import Timeline

__all__ = [
    "CollectiveExplorer",
    "CompressionExplorer",
    "ConsistencyExplorer",
    "ConvolutionExplorer",
    "FederatedExplorer",
    "MemoryExplorer",
    "MeshExplorer",
    "MessagePlayer",
    "PlacementExplorer",
    "PlanExplorer",
    "ScalingExplorer",
    "ScheduleExplorer",
    "ScheduleLevels",
    "TensorExplorer",
    "Timeline",
]
