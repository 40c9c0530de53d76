//! A packet sent after the reply to a barrier follows the rules changed before it.

use super::frames::{eth, source};
use super::{LIMIT, Lab, received};
use testkit::{require_netns, require_programs};

/// Number of changes.
const CHANGES: usize = 200;

/// Changes the rule of port 1 to port 2 or 3 in turn, each with a copy back to port 1; waits for the barrier's reply,
/// sends a numbered frame from this host, and waits for the copy, so that no frame meets a later change. Arguments: the management socket, the interface, the number of changes.
const CLIENT: &str = "\
import socket, struct, sys
of = socket.socket(socket.AF_UNIX)
of.connect(sys.argv[1])
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x8899))
out.bind((sys.argv[2], 0x8899))
out.settimeout(10)
stream = of.makefile('rb')
def read():
    head = stream.read(8)
    version, kind, size, xid = struct.unpack('!BBHI', head)
    return kind, xid, stream.read(size - 8)
def change(port, xid):
    body = struct.pack('!QQBBHHHIIIH2x', 0, 0, 0, 0, 0, 0, 100, 0xffffffff, 0xffffffff, 0xffffffff, 0)
    body += struct.pack('!HHII4x', 1, 12, 0x80000004, 1)
    body += struct.pack('!HH4x', 4, 40) + struct.pack('!HHIH6x', 0, 16, port, 0xffff)
    body += struct.pack('!HHIH6x', 0, 16, 0xfffffff8, 0xffff)
    of.sendall(struct.pack('!BBHI', 4, 14, 8 + len(body), xid) + body + struct.pack('!BBHI', 4, 20, 8, xid + 1))
    while True:
        kind, got, rest = read()
        assert kind != 1, rest.hex()
        if (kind, got) == (21, xid + 1):
            return
of.sendall(struct.pack('!BBHI', 4, 0, 8, 1))
for n in range(int(sys.argv[3])):
    change(2 + n % 2, 10 + 2 * n)
    frame = bytes.fromhex('02000000000202aa000000018899') + struct.pack('!I', n) + bytes(46)
    out.send(frame)
    while out.recv(2048) != frame:
        pass
";

/// Source and type of the last frame, as tcpdump prints them.
const END: &str = "02aa 0000 0009 88b6";

#[test]
fn no_packet_follows_a_rule_that_was_replaced_before_a_barrier() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "tcpdump");
    let lab = Lab::new(3);
    let captures = [lab.watch(2), lab.watch(3)];
    let socket = lab.daemon.rundir().path().join("br0.mgmt");
    let host = lab.host(1);
    let args = ["-c", CLIENT, socket.to_str().unwrap(), &host.dev, &CHANGES.to_string()];
    host.netns.cmd("/usr/bin/python3").args(args).run().unwrap();
    lab.rules("OpenFlow13", "actions=flood");
    super::send(host, &[eth("020000000002", &source(9), "88b6")]);
    let numbers = captures.map(|capture| {
        capture.wait_for(END, LIMIT).unwrap();
        let frames = received(&capture.stop().unwrap());
        let of_client = frames.iter().filter(|f| f[24..28] == *"8899");
        of_client.map(|f| usize::from_str_radix(&f[28..36], 16).unwrap()).collect::<Vec<_>>()
    });
    for (remainder, numbers) in numbers.into_iter().enumerate() {
        let expected: Vec<usize> = (0..CHANGES).filter(|n| n % 2 == remainder).collect();
        assert_eq!(numbers, expected, "at host {}", remainder + 2);
    }
    let coverage = lab.appctl("coverage/show");
    assert!(coverage.contains("barrier_waited") && !coverage.contains("barrier_timeout"), "{coverage}");
}
