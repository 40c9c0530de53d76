//! Connections that go on beside a restart of the daemon: the tracker forgets them, and their next segments are picked up in
//! mid-stream.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::{patience, require_netns, require_programs, wait_for};

use crate::ct_lab::{Kind, Lab};
use crate::helpers::{LIMIT, appctl};

/// Only host 1 begins connections. `commit` is the action for their first packet; without `picks_up`, that is a SYN.
fn rules(commit: &str, picks_up: bool) -> String {
    let only_syn = "cookie=7,table=1,priority=30,in_port=1,tcp,ct_state=+trk+new,tcp_flags=-syn actions=drop";
    format!(
        "ip actions=ct(zone=3,nat,table=1)
         table=1,priority=40,ip,ct_state=+trk+inv actions=drop
         {}
         table=1,priority=20,in_port=1,ip,ct_state=+trk+new actions=ct(commit,zone=3{commit}),2
         table=1,priority=20,in_port=1,ip,ct_state=+trk+est actions=2
         table=1,priority=20,in_port=2,ip,ct_state=+trk+est+rpl actions=1",
        if picks_up { "" } else { only_syn }
    )
}

/// Both ends of a connection.
struct Stream {
    near: TcpStream,
    far: TcpStream,
}

impl Stream {
    fn new(lab: &Lab, port: u16) -> Stream {
        let listener = lab.listen(1, port);
        let near = lab.connect(0, (lab.address(1), port));
        let near = near.unwrap_or_else(|| panic!("no connection: {}", lab.state()));
        let far = listener.accept().unwrap().0;
        for end in [&near, &far] {
            end.set_read_timeout(Some(patience(LIMIT * 6))).unwrap();
            end.set_nodelay(true).unwrap();
        }
        Stream { near, far }
    }

    /// Numbered messages in both directions arrive, each once and in order.
    fn exchange(&mut self, lab: &Lab, numbers: std::ops::Range<u32>) {
        for n in numbers {
            let (near, far) = (&self.near, &self.far);
            for (mut from, mut to) in [(near, far), (far, near)] {
                // One may be under way since before the restart.
                if n != UNDER_WAY || from.local_addr().unwrap().port() == PORT {
                    from.write_all(&n.to_be_bytes()).unwrap();
                }
                let mut got = [0; 4];
                to.read_exact(&mut got).unwrap_or_else(|why| panic!("{n}: {why}: {}", lab.state()));
                assert_eq!(u32::from_be_bytes(got), n);
            }
        }
    }

    /// The tracked connection with its tuples, as it must be after a restart, too.
    fn line(&self, lab: &Lab, seen: Ipv4Addr) -> String {
        let (client, server) = (lab.address(0), lab.address(1));
        let port = self.near.local_addr().unwrap().port();
        format!(
            "tcp,orig=(src={client},dst={server},sport={port},dport={PORT}),\
             reply=(src={server},dst={seen},sport={PORT},dport={port}),zone=3,protoinfo=(state=ESTABLISHED)"
        )
    }
}

/// The server's port.
const PORT: u16 = 5001;
/// The message that the client sends before it is forwarded again.
const UNDER_WAY: u32 = 100;

fn a_stream_survives_a_restart(is_translated: bool) {
    let mut lab = Lab::new(Kind::Userspace, "ip actions=drop");
    let [a, b, c, _] = lab.address(0).octets();
    let (seen, commit) = match is_translated {
        false => (lab.address(0), String::new()),
        true => {
            let other = Ipv4Addr::new(a, b, c, 177);
            let (client, server) = (&lab.net.hosts[0], &lab.net.hosts[1]);
            let entry = ["neigh", "replace", &other.to_string(), "lladdr", &client.mac, "dev", &server.dev];
            server.netns.run("ip", &entry).unwrap();
            (other, format!(",nat(src={other})"))
        }
    };
    lab.rules(&rules(&commit, true));
    let mut stream = Stream::new(&lab, PORT);
    stream.exchange(&lab, 0..UNDER_WAY);
    assert_eq!(stream.far.peer_addr().unwrap().ip(), seen);
    let line = stream.line(&lab, seen);
    assert!(lab.connections().contains(&line), "{line}: {}", lab.connections());

    lab.restart();
    assert_eq!(lab.connections(), "");
    // Rules that admit no segment in mid-stream stop the stream: the tracker has forgotten the connection.
    lab.rules(&rules(&commit, false));
    stream.near.write_all(&UNDER_WAY.to_be_bytes()).unwrap();
    let dropped = || {
        appctl(&lab.daemon, "revalidator/wait");
        let flows = lab.daemon.ovs("ovs-ofctl", &["dump-flows", "br0", "cookie=7/-1"]).unwrap().stdout;
        flows.contains("n_packets=") && !flows.contains("n_packets=0,")
    };
    wait_for(LIMIT * 3, "a segment in mid-stream to be dropped", dropped)
        .unwrap_or_else(|why| panic!("{why:#}: {}", lab.state()));
    stream.far.set_nonblocking(true).unwrap();
    assert_eq!(stream.far.read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::WouldBlock);
    stream.far.set_nonblocking(false).unwrap();
    assert_eq!(lab.connections(), "");

    // With usual rules it is picked up by its next segment, of either direction's numbers, and translated as before.
    lab.rules(&rules(&commit, true));
    stream.exchange(&lab, UNDER_WAY..2 * UNDER_WAY);
    assert!(lab.connections().contains(&line), "{line}: {}", lab.connections());
    // Host 2 begins no connection, as before.
    let _unreached = lab.listen(0, 9001);
    assert!(lab.connect(1, (lab.address(0), 9001)).is_none());
    // Segments beyond the windows that were picked up do not occur.
    assert_eq!(appctl(&lab.daemon, "coverage/read-counter conntrack_tcp_seq_chk_failed"), "0\n");
}

#[test]
fn a_tracked_stream_survives_a_restart() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    a_stream_survives_a_restart(false);
}

#[test]
fn a_translated_stream_survives_a_restart() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    a_stream_survives_a_restart(true);
}

/// Ends both sides of a stream, also when a test fails, so that its threads end.
struct Cut<'a>(&'a Stream);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        for end in [&self.0.near, &self.0.far] {
            // It may have ended.
            let _ended = end.shutdown(Shutdown::Both);
        }
    }
}

/// A transfer at full rate, with large segments and window scales that the tracker does not see again.
#[test]
fn a_transfer_survives_a_restart() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let mut lab = Lab::new(Kind::Userspace, &rules("", true));
    let stream = Stream::new(&lab, PORT);
    let arrived = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (mut near, mut far, arrived) = (&stream.near, &stream.far, &arrived);
        let _cut = Cut(&stream);
        scope.spawn(move || {
            let mut next = 0_u64;
            loop {
                let words: Vec<u8> = (next..next + 4096).flat_map(u64::to_be_bytes).collect();
                if near.write_all(&words).is_err() {
                    return;
                }
                next += 4096;
            }
        });
        scope.spawn(move || {
            let mut expected = 0_u64;
            let mut words = [0; 8 * 512];
            while far.read_exact(&mut words).is_ok() {
                for n in words.chunks_exact(8) {
                    assert_eq!(n, expected.to_be_bytes());
                    expected += 1;
                }
                arrived.store(expected * 8, Ordering::Release);
            }
        });
        let grows = |more: u64, lab: &Lab| {
            let before = arrived.load(Ordering::Acquire);
            wait_for(LIMIT * 6, "the transfer to go on", || arrived.load(Ordering::Acquire) > before + more)
                .unwrap_or_else(|why| panic!("{why:#}: {}", lab.state()));
        };
        grows(10 << 20, &lab);
        lab.restart();
        lab.rules(&rules("", true));
        grows(50 << 20, &lab);
        let tracked = lab.connections();
        assert!(tracked.contains(&stream.line(&lab, lab.address(0))), "{tracked}");
    });
}
