"""Loads rules of nf_tables into this network namespace, by netlink (linux/netfilter/nf_tables.h).

Arguments: the server's device, then optionally `snat` or `dnat` and an IPv4 address.
"""
import ipaddress
import socket
import struct
import sys

NFTABLES = 10
REQUEST, ACK, CREATE, APPEND = 1, 4, 0x400, 0x800
NESTED = 0x8000
IPV4 = socket.AF_INET


def attr(kind, content):
    pad = -len(content) % 4
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(pad)


def number(kind, value):
    return attr(kind, struct.pack(">I", value))


def text(kind, value):
    return attr(kind, value.encode() + b"\0")


def nest(kind, *parts):
    return attr(kind | NESTED, b"".join(parts))


def expression(name, *parts):
    return nest(1, text(1, name), nest(2, *parts))


def immediate(value):
    return expression("immediate", number(1, 1), nest(2, attr(1, value)))


def compare(value):
    return expression("cmp", number(1, 1), number(2, 0), nest(3, attr(1, value)))


def state(bit):
    mask, zero = struct.pack("=I", bit), bytes(4)
    masked = expression("bitwise", number(1, 1), number(2, 1), number(3, 4), nest(4, attr(1, mask)), nest(5, attr(1, zero)))
    return expression("ct", number(1, 1), number(2, 0)) + masked + compare(mask)


REPLY = expression("ct", number(1, 1), number(2, 1)) + compare(b"\1")


def tag(tos):
    """Writes the first two bytes of the IPv4 header: version, length, TOS."""
    places = number(2, 1), number(3, 0), number(4, 2), number(5, 1), number(6, 1), number(7, 10)
    return immediate(bytes([0x45, tos])) + expression("payload", *places)


def nat(kind, address):
    return immediate(ipaddress.ip_address(address).packed) + expression("nat", number(1, kind), number(2, IPV4), number(3, 1))


class Batch:
    def __init__(self):
        self.bytes, self.seq = b"", 0

    def message(self, kind, flags, family, resource, content=b""):
        self.seq += 1
        body = struct.pack(">BBH", family, 0, resource) + content
        self.bytes += struct.pack("=IHHII", 16 + len(body), kind, flags, self.seq, 0) + body

    def add(self, kind, *parts):
        self.message(NFTABLES << 8 | kind, REQUEST | CREATE | APPEND | ACK, IPV4, 0, b"".join(parts))

    def chain(self, name, kind, hook, priority):
        place = nest(4, number(1, hook), attr(2, struct.pack(">i", priority)))
        self.add(3, text(1, "oracle"), text(3, name), place, text(7, kind))

    def rule(self, chain, *expressions):
        self.add(6, text(1, "oracle"), text(2, chain), nest(4, *expressions))


def main(device, *translation):
    batch = Batch()
    batch.message(0x10, REQUEST, 0, NFTABLES)
    batch.add(0, text(1, "oracle"))
    batch.chain("tags", "filter", 2, 0)
    # Bits of `ct state`; replies overwrite the tag.
    for bit, tos in (8, 0x04), (2, 0x08), (4, 0x10), (1, 0x20):
        batch.rule("tags", state(bit), tag(tos))
        if bit != 1:
            batch.rule("tags", state(bit), REPLY, tag(tos | 0x40))
    if translation:
        kind, address = translation
        if kind == "snat":
            batch.chain("source", "nat", 4, 100)
            name = device.encode().ljust(16, b"\0")
            outgoing = expression("meta", number(1, 1), number(2, 7)) + compare(name)
            batch.rule("source", outgoing, nat(0, address))
        else:
            virtual, target = address.split(",")
            batch.chain("destination", "nat", 0, -100)
            load = expression("payload", number(1, 1), number(2, 1), number(3, 16), number(4, 4))
            batch.rule("destination", load, compare(ipaddress.ip_address(virtual).packed), nat(1, target))
    batch.message(0x11, REQUEST, 0, NFTABLES)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as netlink:
        netlink.settimeout(10)
        netlink.send(batch.bytes)
        for _ in range(batch.seq - 2):
            reply = netlink.recv(1 << 16)
            kind, _, seq, _, error = struct.unpack_from("=HHIIi", reply, 4)
            if kind != 2 or error:
                sys.exit(f"message {seq}: type {kind}, error {-error}")


main(*sys.argv[1:])
