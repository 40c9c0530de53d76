//! Connections that go on beside a restart of the daemon: the next one has them. With `restore=never` the tracker forgets them,
//! and their next segments are picked up in mid-stream.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::{Signal, patience, require_netns, require_programs, wait_for};

use crate::ct_lab::{Kind, Lab};
use crate::helpers::{LIMIT, appctl, vsctl};

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

/// A lab, and the address and action of connections that are translated, or not.
fn lab_of(is_translated: bool) -> (Lab, Ipv4Addr, String) {
    let lab = Lab::new(Kind::Userspace, "ip actions=drop");
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
    (lab, seen, commit)
}

/// Waits until the next process would have connections: from this process, and proved if it restored some.
fn wait_kept(lab: &Lab) {
    let mark = lab.daemon.rundir().join("ovs-vswitchd.state.mark");
    wait_for(LIMIT, "proof of the restored state", || !mark.exists()).unwrap();
    let (file, began) =
        (lab.daemon.rundir().join("ovs-vswitchd.connections"), lab.daemon.rundir().join("ovs-vswitchd.pid"));
    let changed = |path: &Path| std::fs::metadata(path).and_then(|about| about.modified()).ok();
    let has_some = || std::fs::read(&file).is_ok_and(|bytes| bytes.windows(4).any(|four| four == b"SLct"));
    let is_own = || changed(&file).zip(changed(&began)).is_some_and(|(file, began)| file > began);
    wait_for(LIMIT, "connections in the file", || has_some() && is_own()).unwrap();
}

fn a_stream_goes_on(is_translated: bool, by: Signal) {
    let (mut lab, seen, commit) = lab_of(is_translated);
    // Only a SYN begins a connection.
    lab.rules(&rules(&commit, false));
    let mut stream = Stream::new(&lab, PORT);
    let line = stream.line(&lab, seen);
    for round in 0..3 {
        stream.exchange(&lab, 1000 * round..1000 * round + UNDER_WAY);
        assert_eq!(stream.far.peer_addr().unwrap().ip(), seen);
        wait_kept(&lab);
        lab.restart(by);
        wait_for(LIMIT, "the connection", || lab.connections().contains(&line))
            .unwrap_or_else(|why| panic!("{why:#}: {line}: {}", lab.state()));
    }
    stream.exchange(&lab, 3000..3000 + UNDER_WAY);
    assert_eq!(appctl(&lab.daemon, "coverage/read-counter conntrack_tcp_seq_chk_failed"), "0\n");
    // It ends as any other, and stays ended.
    stream.near.shutdown(Shutdown::Both).unwrap();
    stream.far.shutdown(Shutdown::Both).unwrap();
    wait_for(LIMIT, "its end", || !lab.connections().contains("ESTABLISHED")).unwrap();
    appctl(&lab.daemon, "dpctl/flush-conntrack");
    lab.restart(Signal::TERM);
    assert_eq!(lab.connections(), "");
    let file = lab.daemon.rundir().join("ovs-vswitchd.connections");
    wait_for(LIMIT, "the file", || file.exists()).unwrap();
    vsctl(&lab.daemon, "set Open_vSwitch . other_config:restore=never");
    wait_for(LIMIT, "the end of the file", || !file.exists()).unwrap();
    vsctl(&lab.daemon, "remove Open_vSwitch . other_config restore");
    wait_for(LIMIT, "the file again", || file.exists()).unwrap();
    appctl(&lab.daemon, "exit --cleanup");
    wait_for(LIMIT, "the daemon to end", || lab.daemon.status().is_some()).unwrap();
    assert!(!file.exists());
}

#[test]
fn a_stream_goes_on_after_a_kill() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    a_stream_goes_on(false, Signal::KILL);
}

#[test]
fn a_translated_stream_goes_on_after_a_kill() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    a_stream_goes_on(true, Signal::KILL);
}

#[test]
fn a_translated_stream_goes_on_after_an_exit() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    a_stream_goes_on(true, Signal::TERM);
}

/// A damaged file costs connections, not the start; the log says so.
#[test]
fn damaged_connections_are_left_out() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let (mut lab, _, commit) = lab_of(false);
    lab.rules(&rules(&commit, true));
    let mut stream = Stream::new(&lab, PORT);
    wait_kept(&lab);
    lab.daemon.signal(Signal::TERM).unwrap();
    wait_for(LIMIT, "the daemon to end", || lab.daemon.status().is_some()).unwrap();
    let file = lab.daemon.rundir().join("ovs-vswitchd.connections");
    let mut bytes = std::fs::read(&file).unwrap();
    // Within the first frame.
    let at = bytes.windows(4).position(|four| four == b"SLct").unwrap();
    bytes[at + 9] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    lab.start();
    let told = "connections of the last process are left out from here on: a frame fails its checksum";
    wait_for(LIMIT, "the line", || lab.daemon.log().contains(told)).unwrap();
    assert_eq!(lab.connections(), "");
    stream.exchange(&lab, 0..UNDER_WAY);
}

fn a_stream_is_picked_up(is_translated: bool) {
    let (mut lab, seen, commit) = lab_of(is_translated);
    vsctl(&lab.daemon, "set Open_vSwitch . other_config:restore=never");
    lab.rules(&rules(&commit, true));
    let mut stream = Stream::new(&lab, PORT);
    stream.exchange(&lab, 0..UNDER_WAY);
    assert_eq!(stream.far.peer_addr().unwrap().ip(), seen);
    let line = stream.line(&lab, seen);
    assert!(lab.connections().contains(&line), "{line}: {}", lab.connections());

    lab.restart(Signal::TERM);
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
fn a_forgotten_stream_is_picked_up() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    a_stream_is_picked_up(false);
}

#[test]
fn a_forgotten_translated_stream_is_picked_up() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    a_stream_is_picked_up(true);
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

/// A transfer at full rate, with large segments and window scales that the tracker does not see again: a kept one, of which megabytes
/// pass between the last writing and the kill, and one that is picked up.
#[test]
fn a_transfer_survives_a_restart() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    for is_kept in [true, false] {
        a_transfer_goes_on(is_kept);
    }
}

fn a_transfer_goes_on(is_kept: bool) {
    let mut lab = Lab::new(Kind::Userspace, &rules("", !is_kept));
    if !is_kept {
        vsctl(&lab.daemon, "set Open_vSwitch . other_config:restore=never");
    }
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
        if is_kept {
            wait_kept(&lab);
            grows(50 << 20, &lab);
            lab.restart(Signal::KILL);
        } else {
            lab.restart(Signal::TERM);
            lab.rules(&rules("", true));
        }
        grows(50 << 20, &lab);
        if is_kept {
            let failed = appctl(&lab.daemon, "coverage/read-counter conntrack_tcp_seq_chk_failed");
            assert_eq!(failed, "0\n");
        }
        let tracked = lab.connections();
        assert!(tracked.contains(&stream.line(&lab, lab.address(0))), "{tracked}");
    });
}
