//! OpenFlow connections pass to the successor: no peer connects anew, and each goes on where it was.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use openflow::msg::control::{ControllerRole, Role, SwitchConfig};
use openflow::session::{Config, Event, Session};
use openflow::{Format, Message, Version, VersionSet};
use testkit::{Daemon, require_netns, require_programs, wait_for};

use super::{Successor, hand_over};
use crate::helpers::{LIMIT, require_userspace, switch, vsctl};

/// A controller or another client of a bridge.
struct Client<S> {
    socket: S,
    session: Session,
    /// Messages that are not taken yet.
    received: Vec<(u32, Message)>,
}

impl<S: Read + Write> Client<S> {
    /// Agrees on OpenFlow 1.3. Reads of the socket time out soon.
    fn new(socket: S) -> Client<S> {
        let versions = VersionSet::of(&[Version::V13]);
        let config = Config { versions, probe_interval_ms: 0, ..Config::default() };
        let mut client = Client { socket, session: Session::new(config, 0), received: Vec::new() };
        let until = Instant::now() + LIMIT;
        while client.session.version().is_none() {
            assert!(Instant::now() < until, "no hello");
            client.exchange();
        }
        client
    }

    /// Sends what waits, and reads once.
    fn exchange(&mut self) {
        self.socket.write_all(self.session.output()).unwrap();
        self.session.consume_output(self.session.output().len());
        let mut bytes = [0; 1 << 14];
        match self.socket.read(&mut bytes) {
            Ok(0) => panic!("the connection has ended"),
            Ok(n) => {
                for event in self.session.input(&bytes[..n], 0) {
                    match event {
                        Event::Message { xid, message, .. } => self.received.push((xid, *message)),
                        Event::Connected(_) => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
            // A read with a timeout is interrupted, not restarted.
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(e) => panic!("{e}"),
        }
    }

    /// The first message that `wanted` takes, within the limit.
    fn wait(&mut self, what: &str, wanted: impl Fn(u32, &Message) -> bool) -> Message {
        let until = Instant::now() + testkit::patience(LIMIT);
        loop {
            if let Some(n) = self.received.iter().position(|(xid, message)| wanted(*xid, message)) {
                return self.received.remove(n).1;
            }
            assert!(Instant::now() < until, "{what} is missing: {:?}", self.received);
            self.exchange();
        }
    }

    /// The reply to a request.
    fn ask(&mut self, message: &Message) -> Message {
        let xid = self.session.send(message).unwrap();
        self.wait("a reply", |of, _| of == xid)
    }
}

fn role(role: ControllerRole, generation_id: u64) -> Message {
    Message::RoleRequest(Role { format: Format::Standard, role, generation_id })
}

fn patient(socket: TcpStream) -> TcpStream {
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    socket
}

/// Waits until the row of the controller that the bridge connects to says so.
fn connected(daemon: &Daemon, is_connected: bool) {
    let query = r#"--bare --columns=is_connected find Controller target="tcp:127.0.0.1:6651""#;
    let is_so = || vsctl(daemon, query).trim() == is_connected.to_string();
    wait_for(LIMIT, &format!("is_connected={is_connected}"), is_so).unwrap();
}

#[test]
fn openflow_connections_go_on_and_bridges_keep_what_controllers_set() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    require_userspace!("a datapath of the kernel stays as it is");
    let (net, daemon) = switch(2);
    let listener = net.switch.enter(|| TcpListener::bind("127.0.0.1:6651").unwrap()).unwrap();
    vsctl(
        &daemon,
        "set-fail-mode br0 secure \
         -- --id=@a create Controller target=\"tcp:127.0.0.1:6651\" inactivity_probe=0 \
         -- --id=@p create Controller target=\"ptcp:6652:127.0.0.1\" inactivity_probe=0 \
         -- set Bridge br0 controller=@a,@p protocols=OpenFlow10,OpenFlow13",
    );
    // One that the bridge connects to, one that connects to it, one of its own socket.
    let mut active = Client::new(patient(listener.accept().unwrap().0));
    let connect = || TcpStream::connect("127.0.0.1:6652");
    wait_for(LIMIT, "the listener", || net.switch.enter(connect).unwrap().is_ok()).unwrap();
    let mut passive = Client::new(patient(net.switch.enter(connect).unwrap().unwrap()));
    let socket = UnixStream::connect(daemon.rundir().join("br0.mgmt")).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut local = Client::new(socket);
    local.session.send(&Message::SetConfig(SwitchConfig { flags: 1, miss_send_len_bytes: 100 })).unwrap();
    let set = local.ask(&Message::GetConfigRequest);
    active.ask(&role(ControllerRole::Master, 7));
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "priority=5,arp,actions=controller"]).unwrap();
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "priority=1,actions=normal"]).unwrap();
    daemon.ovs("ovs-ofctl", &["mod-port", "br0", "br0", "no-flood"]).unwrap();
    let port = || daemon.ovs("ovs-ofctl", &["show", "br0"]).unwrap().stdout;
    assert!(port().contains("NO_FLOOD"), "{}", port());
    connected(&daemon, true);
    let mut successors: Vec<Successor> = Vec::new();
    for round in 0..2 {
        // Half of a request waits in the daemon.
        let barrier = openflow::encode(&Message::BarrierRequest, Version::V13, 4000).unwrap();
        passive.socket.write_all(&barrier[..5]).unwrap();
        let before = successors.last().map_or(daemon.pid(), |last| last.pid);
        successors.push(hand_over(&daemon, before));
        passive.socket.write_all(&barrier[5..]).unwrap();
        passive.wait("a reply", |xid, message| xid == 4000 && *message == Message::BarrierReply);
        assert_eq!(local.ask(&Message::GetConfigRequest), set, "round {round}");
        let Message::RoleReply(role_now) = active.ask(&role(ControllerRole::NoChange, 0)) else {
            panic!("no role");
        };
        assert_eq!((role_now.role, role_now.generation_id), (ControllerRole::Master, 7), "round {round}");
        assert!(
            matches!(passive.ask(&role(ControllerRole::Master, 6)), Message::Error(_)),
            "an older election is stale"
        );
        assert!(port().contains("NO_FLOOD"), "{}", port());
        // Rules and packets of the switch reach the connections, which it takes for connected.
        active.received.clear();
        net.hosts[0].netns.ip("neigh flush all").unwrap();
        testkit::ping(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 1).unwrap();
        active.wait("a packet", |_, message| matches!(message, Message::PacketIn(_)));
        assert_eq!(active.ask(&Message::BarrierRequest), Message::BarrierReply);
        connected(&daemon, true);
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "the bridge connected anew");
    }
    // Their ends are noticed.
    drop((active, passive));
    connected(&daemon, false);
}
