"""Real devices and links, each figure with its source: `DEVICES["A100 80GB SXM"].device`.

These are peaks, which no program reaches. A GPU's flops are its dense FP16 or BF16 tensor-core
peak; its gamma reads two operands and writes one at the speed of its memory. A link's bandwidth is
that of one direction. Data sheets give no latencies: these are the values that NCCL assumes for a
step of a ring of GPUs (NVLink 3.4 us, PCIe 5.7 us, network 14 us), and sockets take longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlviz.machine.machine import Device
from dlviz.machine.topology import Link


@dataclass(frozen=True)
class KnownDevice:
    """A device and the source of its figures."""

    device: Device
    source: str


@dataclass(frozen=True)
class KnownLink:
    """A link and the source of its figures."""

    link: Link
    source: str


def _device(
    name: str, flops: float, memory: float, memory_bandwidth: float, source: str
) -> KnownDevice:
    return KnownDevice(
        Device(name, flops, memory, memory_bandwidth, gamma=3 / memory_bandwidth), source
    )


_NVLINK, _PCIE, _NETWORK = 3.4e-6, 5.7e-6, 14e-6
_NCCL = "; latency: NCCL, src/graph/tuning.cc, hwLatencies, ring, Simple"

DEVICES: dict[str, KnownDevice] = {
    known.device.name: known
    for known in (
        _device("V100 SXM2 32GB", 125e12, 32e9, 900e9, "NVIDIA V100 data sheet, January 2020"),
        _device("A100 80GB SXM", 312e12, 80e9, 2039e9, "NVIDIA A100 data sheet, June 2021"),
        _device(
            "H100 SXM", 989.4e12, 80e9, 3.35e12, "NVIDIA H100 data sheet and white paper, 2023"
        ),
        _device("H200 SXM", 989.5e12, 141e9, 4.8e12, "NVIDIA H200 data sheet, November 2024"),
        _device(
            "laptop core",
            96e9,
            16e9,
            51.2e9,
            "FP32 peak of an AVX2 core at 3 GHz (2 FMA units x 8 lanes x 2 FLOP); 16 GB on two "
            "channels of DDR4-3200 (JEDEC JESD79-4: 8 bytes x 3200 MT/s each)",
        ),
    )
}

LINKS: dict[str, KnownLink] = {
    "NVLink 2": KnownLink(
        Link(_NVLINK, 150e9), "6 links of 25 GB/s: NVIDIA V100 data sheet, January 2020" + _NCCL
    ),
    "NVLink 3": KnownLink(
        Link(_NVLINK, 300e9), "12 links of 25 GB/s: NVIDIA A100 data sheet, June 2021" + _NCCL
    ),
    "NVLink 4": KnownLink(
        Link(_NVLINK, 450e9), "18 links of 25 GB/s: NVIDIA H100 data sheet, 2023" + _NCCL
    ),
    "PCIe 4.0 x16": KnownLink(
        Link(_PCIE, 16e9 * 16 * 128 / 130 / 8),
        "16 GT/s x 16 lanes, 128b/130b: PCI Express Base Specification 4.0" + _NCCL,
    ),
    "PCIe 5.0 x16": KnownLink(
        Link(_PCIE, 32e9 * 16 * 128 / 130 / 8),
        "32 GT/s x 16 lanes, 128b/130b: PCI Express Base Specification 5.0" + _NCCL,
    ),
    "InfiniBand EDR": KnownLink(
        Link(_NETWORK, 100e9 / 8), "100 Gb/s: Mellanox ConnectX-5 VPI product brief" + _NCCL
    ),
    "InfiniBand HDR": KnownLink(
        Link(_NETWORK, 200e9 / 8), "200 Gb/s: NVIDIA ConnectX-6 data sheet" + _NCCL
    ),
    "InfiniBand NDR": KnownLink(
        Link(_NETWORK, 400e9 / 8), "400 Gb/s: NVIDIA ConnectX-7 data sheet" + _NCCL
    ),
    "10 Gb Ethernet": KnownLink(Link(_NETWORK, 10e9 / 8), "10 Gb/s: IEEE 802.3ae" + _NCCL),
    "100 Gb Ethernet": KnownLink(Link(_NETWORK, 100e9 / 8), "100 Gb/s: IEEE 802.3ba" + _NCCL),
}
