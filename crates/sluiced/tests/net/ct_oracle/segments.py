"""Passes TCP segments through a tracker between two devices, one at a time.

Arguments: devices of clients and servers. Each line of the input is a segment:
connection, sender (`c` or `s`), client's address and port, server's address and port,
flags, sequence and acknowledgement number, window, scale or -1, bytes, whether its checksum is wrong.
A server answers the tuple that it sees. Each line of the output is the arrival, or `lost`:
receiver, TOS, source and its port, destination and its port, whether the checksum is right.
"""
import select
import socket
import struct
import sys

LIMIT_S = 10


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def pseudo(source, destination, tcp):
    return socket.inet_aton(source) + socket.inet_aton(destination) + struct.pack(">BBH", 0, 6, len(tcp))


def frame(number, tuple_, flags, seq, ack, window, scale, size, wrong):
    source, source_port, destination, destination_port = tuple_
    options = struct.pack(">BBBB", 1, 3, 3, scale) if scale >= 0 else b""
    head = struct.pack(">HHIIBB", source_port, destination_port, seq, ack, 5 + len(options) // 4 << 4, flags)
    tcp = head + struct.pack(">HHH", window, 0, 0) + options + b"x" * size
    total = checksum(pseudo(source, destination, tcp) + tcp) ^ (0x5555 if wrong else 0)
    tcp = tcp[:16] + struct.pack(">H", total) + tcp[18:]
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), number, 0, 64, 6, 0) + addresses
    return ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:] + tcp


def arrival(packet):
    source, destination = map(socket.inet_ntoa, (packet[12:16], packet[16:20]))
    tcp = packet[20 : int.from_bytes(packet[2:4], "big")]
    ports = struct.unpack_from(">HH", tcp)
    right = checksum(pseudo(source, destination, tcp) + tcp) == 0 == checksum(packet[:20])
    return packet[1], (source, ports[0], destination, ports[1]), right


def open_device(device):
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    packets.bind((device, 0x0800))
    return packets


def receive(devices, number):
    """The side that receives the packet of that number, and the packet."""
    while ready := select.select(list(devices.values()), [], [], LIMIT_S)[0]:
        for side, device in devices.items():
            if device in ready:
                packet = device.recv(1 << 16)[14:]
                if packet[9] == 6 and int.from_bytes(packet[4:6], "big") == number:
                    return side, packet
    return None


def main(clients, servers):
    devices = {"c": open_device(clients), "s": open_device(servers)}
    # Both sides of the tracker have the address 02:00:00:00:00:0f.
    ethernet = bytes.fromhex("02000000000f0200000000010800")
    seen = {}
    for number, line in enumerate(sys.stdin, 1):
        connection, side, client, client_port, server, server_port, *rest = line.split()
        tuple_ = client, int(client_port), server, int(server_port)
        if side == "s":
            source, source_port, destination, destination_port = seen.get(connection, tuple_)
            tuple_ = destination, destination_port, source, source_port
        devices[side].send(ethernet + frame(number, tuple_, *map(int, rest)))
        got = receive(devices, number)
        if got is None:
            print("lost", flush=True)
            continue
        tos, tuple_, right = arrival(got[1])
        if got[0] == "s" and tos != 0x20:
            seen[connection] = tuple_
        print(got[0], tos, *tuple_, int(right), flush=True)


main(*sys.argv[1:])
