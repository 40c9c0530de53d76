//! Packet sockets outlive a daemon that is killed or crashes: their frames wait for the next one.

use std::net::UdpSocket;
use std::time::Duration;

use testkit::{
    Cmd, Daemon, DaemonSpec, Netns, RunDir, ServiceManager, Signal, TempDir, Topology, require_netns,
    require_programs, wait_for,
};

use crate::helpers::{LIMIT, appctl, require_userspace, spec, vsctl, wait_log};

const PORT: u16 = 7711;
/// Datagrams sent while nobody receives: fewer than a ring holds.
const WAITING: u32 = 500;
/// Frames that a thread takes at a time.
const BURST: u32 = 32;
/// Words of the name of a ring that grew.
const RING: &str = " 1024";

/// Two hosts of a switch that a service manager runs.
pub(crate) struct Lab {
    pub(crate) net: Topology,
    pub(crate) run: RunDir,
    manager: ServiceManager,
    _folder: TempDir,
}

impl Lab {
    pub(crate) fn new() -> (Lab, Daemon) {
        let net = Topology::new(2).unwrap();
        let folder = TempDir::new("manager").unwrap();
        let manager = ServiceManager::start(&folder.path().join("notify")).unwrap();
        let lab = Lab { net, run: RunDir::new("kept").unwrap(), manager, _folder: folder };
        let daemon = lab.spec().start().unwrap();
        let ports = lab.net.ports();
        vsctl(&daemon, &format!("add-br br0 -- add-port br0 {} -- add-port br0 {}", ports[0], ports[1]));
        (lab, daemon)
    }

    /// The next daemon, with what the manager holds now.
    pub(crate) fn spec(&self) -> DaemonSpec {
        spec(&self.net.switch).rundir(&self.run).manager(&self.manager)
    }

    fn names(&self) -> Vec<String> {
        self.manager.held().into_iter().map(|(name, _)| name).collect()
    }

    pub(crate) fn sockets(&self) -> (UdpSocket, UdpSocket) {
        sockets(&self.net)
    }
}

/// A connected socket of the first host, and one of the second.
fn sockets(net: &Topology) -> (UdpSocket, UdpSocket) {
    let [from, to] = [&net.hosts[0], &net.hosts[1]];
    let receiver = to.netns.enter(|| testkit::patient_receiver(PORT)).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let sender = from.netns.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    sender.connect((to.ipv4, PORT)).unwrap();
    (sender, receiver)
}

/// Sends a datagram until it arrives, so that hosts know each other.
pub(crate) fn reach(sender: &UdpSocket, receiver: &UdpSocket) {
    wait_for(LIMIT, "a datagram", || {
        sender.send(&u32::MAX.to_be_bytes()).unwrap();
        receiver.recv(&mut [0; 8]).is_ok()
    })
    .unwrap();
    drain(receiver);
}

pub(crate) fn drain(receiver: &UdpSocket) {
    while receiver.recv(&mut [0; 8]).is_ok() {}
}

pub(crate) fn send(sender: &UdpSocket, numbers: std::ops::Range<u32>) {
    for n in numbers {
        sender.send(&n.to_be_bytes()).unwrap();
    }
}

/// Receives until that many numbers are here, or nothing comes.
pub(crate) fn receive(receiver: &UdpSocket, count: usize) -> Vec<u32> {
    let (mut numbers, mut bytes) = (Vec::new(), [0; 8]);
    // The last number is certainly sent.
    let _ = wait_for(LIMIT, "datagrams", || {
        while receiver.recv(&mut bytes).is_ok_and(|got| got == 4) {
            numbers.push(u32::from_be_bytes(bytes[..4].try_into().unwrap()));
        }
        numbers.len() >= count
    });
    numbers
}

/// Waits until no thread of a process runs: none has frames that it took.
pub(crate) fn wait_stopped(pid: u32) {
    let is_stopped = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    wait_for(LIMIT, "all threads to stop", || tasks().all(is_stopped)).unwrap();
}

/// Sends fast until the port has a ring.
fn make_ring(lab: &Lab, sender: &UdpSocket, receiver: &UdpSocket) {
    wait_for(LIMIT, "a ring", || {
        for _ in 0..20 {
            send(sender, 0..40);
            std::thread::sleep(Duration::from_millis(1));
        }
        lab.names().iter().any(|name| name.starts_with("rx/") && name.contains(RING))
    })
    .unwrap();
    drain(receiver);
}

#[test]
fn frames_wait_for_the_next_process_of_a_service() {
    require_netns!();
    require_programs!("ovs-vsctl", "sh");
    require_userspace!("packets of the kernel's datapath do not wait for a process");
    let (lab, mut daemon) = Lab::new();
    let (sender, receiver) = lab.sockets();
    for with_ring in [false, true] {
        reach(&sender, &receiver);
        if with_ring {
            make_ring(&lab, &sender, &receiver);
        }
        wait_for(LIMIT, "kept sockets of both ports", || {
            lab.names().iter().filter(|name| name.starts_with("rx/") && !name.contains(RING)).count() == 2
        })
        .unwrap();
        daemon.signal(Signal::STOP).unwrap();
        wait_stopped(daemon.pid());
        send(&sender, 0..WAITING);
        daemon.crash().unwrap();
        daemon = lab.spec().start().unwrap();
        let numbers = receive(&receiver, WAITING as usize);
        assert!(numbers.iter().copied().eq(0..WAITING), "ring {with_ring}: {} of {WAITING}", numbers.len());
        wait_log(&daemon, "frames of 2 ports waited since the end of the last process");
        // The next process may end too.
        let mark = lab.run.join("ovs-vswitchd.state.mark");
        wait_for(LIMIT, "proof of the restored state", || !mark.exists()).unwrap();
    }
    let names = lab.names();
    assert!(names.iter().filter(|name| name.starts_with("rx/")).count() >= 2, "{names:?}");

    // A port that goes is not kept.
    let [first, second] = [&lab.net.ports()[0], &lab.net.ports()[1]].map(|port| port.to_string());
    vsctl(&daemon, &format!("del-port {second}"));
    wait_for(LIMIT, "the end of its sockets", || {
        !lab.names().iter().any(|name| name.contains(&format!("/{second}/")))
    })
    .unwrap();
    assert!(lab.names().iter().any(|name| name.contains(&format!("/{first}/"))));
    daemon.stop().unwrap();
    assert_eq!(lab.names(), [""; 0]);
}

#[test]
fn sockets_without_a_port_and_of_a_daemon_that_crashes_again_are_closed() {
    require_netns!();
    require_programs!("ovs-vsctl", "sh");
    require_userspace!("packets of the kernel's datapath do not wait for a process");
    let (lab, daemon) = Lab::new();
    let (sender, receiver) = lab.sockets();
    reach(&sender, &receiver);
    let sockets = |netns: &Netns| netns.run("cat", &["/proc/net/packet"]).unwrap().stdout.lines().count() - 1;
    let usual = sockets(&lab.net.switch);
    // The device of a port is another one.
    let port = lab.net.ports()[0].to_string();
    let held = lab.manager.held();
    daemon.crash().unwrap();
    lab.net.switch.run("ip", &["link", "set", &port, "name", "other"]).unwrap();
    lab.net.switch.run("ip", &["link", "add", &port, "type", "veth", "peer", "name", "peer0"]).unwrap();
    drop(held);
    let daemon = lab.spec().start().unwrap();
    wait_log(&daemon, "frames that waited are lost");
    lab.net.switch.run("ip", &["link", "del", &port]).unwrap();
    lab.net.switch.run("ip", &["link", "set", "other", "name", &port]).unwrap();
    reach(&sender, &receiver);
    wait_for(LIMIT, "only sockets of ports", || sockets(&lab.net.switch) <= usual).unwrap();

    // A process that ends soon after it took sockets leaves none to the next one.
    let mark = lab.run.join("ovs-vswitchd.state.mark");
    wait_for(LIMIT, "proof of the restored state", || !mark.exists()).unwrap();
    daemon.crash().unwrap();
    std::fs::write(&mark, "").unwrap();
    let daemon = lab.spec().start().unwrap();
    reach(&sender, &receiver);
    wait_log(&daemon, "ended soon after it restored this state");
    wait_for(LIMIT, "only sockets of ports", || sockets(&lab.net.switch) <= usual).unwrap();
}

#[test]
fn frames_wait_while_a_monitor_starts_a_daemon_again_also_after_a_handover() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "kill");
    require_userspace!("packets of the kernel's datapath do not wait for a process");
    let net = Topology::new(2).unwrap();
    let daemon = spec(&net.switch).args(["--monitor"]).ready_file("db.sock").start().unwrap();
    vsctl(
        &daemon,
        &format!("add-br br0 -- add-port br0 {} -- add-port br0 {}", net.ports()[0], net.ports()[1]),
    );
    let (sender, receiver) = sockets(&net);
    let pid = || {
        let text = std::fs::read_to_string(daemon.rundir().join("ovs-vswitchd.pid")).unwrap_or_default();
        text.trim().parse::<u32>().unwrap_or(0)
    };
    reach(&sender, &receiver);
    let before = pid();
    appctl(&daemon, "sluice/handover");
    wait_for(LIMIT, "the successor", || ![0, before].contains(&pid())).unwrap();
    reach(&sender, &receiver);
    let kill = |signal: &str| Cmd::new("kill").args([signal, &pid().to_string()]).run().unwrap();
    kill("-STOP");
    wait_stopped(pid());
    send(&sender, 0..WAITING);
    // SIGABRT waits until the process goes on. A thread may take a burst before it ends.
    kill("-ABRT");
    kill("-CONT");
    let numbers = receive(&receiver, (WAITING - BURST) as usize);
    let is_ordered = numbers.is_sorted_by(|a, b| a < b);
    assert!(numbers.len() as u32 >= WAITING - BURST && is_ordered, "{} of {WAITING}", numbers.len());
    wait_log(&daemon, "frames of 2 ports waited since the end of the last process");
}
