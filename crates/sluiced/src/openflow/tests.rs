//! Connections of all bridges: their total memory is bounded, and packets for controllers arrive.

use super::*;
use crate::instances::Settings;
use dpif::DummyMode;
use flow::OfPort;
use ofp_actions::{Action, Output};
use openflow::msg::bundle::BundleAdd;
use openflow::msg::control::Hello;
use openflow::msg::control::SwitchConfig;
use openflow::msg::flow_mod::{FlowMod, FlowModCommand, FlowModFlags};
use openflow::msg::packet::PacketOut;
use openflow::{Format, GROUP_ANY, Message, NO_BUFFER, Version, VersionSet};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BRIDGES: [&str; 2] = ["br0", "br1"];
const VERSION: Version = Version::V13;

/// Two bridges of a dummy datapath, and the OpenFlow parts of the main loop's turns.
struct Rig {
    openflow: OpenFlow,
    instances: Instances,
    reactor: Reactor,
    dir: testkit::TempDir,
    /// The slow path woke the main loop.
    woken: Arc<AtomicBool>,
    /// Maximum memory held at any time, input and output.
    most: (usize, usize),
}

impl Rig {
    fn new(limits: Limits) -> Rig {
        let dir = testkit::TempDir::new("openflow").unwrap();
        let mut reactor = Reactor::new().unwrap();
        let settings = Settings { dummies: DummyMode::Beside, ..Settings::default() };
        let woken = Arc::new(AtomicBool::new(false));
        let flag = woken.clone();
        let wake = Arc::new(move || flag.store(true, Ordering::Relaxed));
        let mut instances = Instances::new(settings, wake);
        let mut openflow = OpenFlow::new(dir.path(), NextHops::default, true);
        openflow.budgets = limits.budgets();
        for (n, name) in BRIDGES.into_iter().enumerate() {
            let id = BridgeId(n as u32 + 1);
            let instance = instances.add_bridge(id, "dummy").unwrap();
            instance.backer.insert_bridge(id, name);
            openflow.create(id, name, 7, instance, &mut reactor);
        }
        Rig { openflow, instances, reactor, dir, woken, most: (0, 0) }
    }

    fn connect(&mut self, bridge: &str) -> Client {
        let stream = UnixStream::connect(self.dir.path().join(format!("{bridge}.mgmt"))).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut client = Client { stream, unsent: Vec::new(), got: Vec::new(), is_gone: false };
        let hello = Message::Hello(Hello { versions: VersionSet::of(&[VERSION]) });
        client.send(self, &hello);
        client
    }

    /// One turn: events, then waiting work. Returns the time of the next turn.
    fn turn(&mut self) -> Turn {
        self.woken.store(false, Ordering::Relaxed);
        let mut events = mio::Events::with_capacity(1024);
        self.reactor.poll().poll(&mut events, Some(Duration::ZERO)).unwrap();
        for token in self.reactor.take_ready(&events) {
            self.openflow.event(token, &mut self.reactor, 1);
            self.look();
        }
        let next = self.openflow.run(&self.instances, &mut self.reactor, 1);
        self.look();
        next.and(Turn::more_if(self.woken.load(Ordering::Relaxed)))
    }

    fn look(&mut self) {
        let (input, output) = (&self.openflow.budgets.input, &self.openflow.budgets.output);
        self.most = (self.most.0.max(input.used_bytes()), self.most.1.max(output.used_bytes()));
    }

    /// Turns until no work is ready.
    fn settle(&mut self) {
        let mut calm = 0;
        while calm < 3 {
            calm = if self.turn() == Turn::MORE { 0 } else { calm + 1 };
        }
    }

    fn links(&self) -> usize {
        self.openflow.bridges.values().map(OfBridge::links).sum()
    }
}

struct Client {
    stream: UnixStream,
    unsent: Vec<u8>,
    got: Vec<u8>,
    is_gone: bool,
}

impl Client {
    /// Queues a message and sends as much as the socket accepts.
    fn send(&mut self, rig: &mut Rig, message: &Message) {
        self.unsent.extend(openflow::encode(message, VERSION, 7).unwrap());
        self.push(rig);
    }

    fn push(&mut self, rig: &mut Rig) {
        self.write();
        let _more = rig.turn();
    }

    fn write(&mut self) {
        while !self.unsent.is_empty() && !self.is_gone {
            match self.stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => self.is_gone = true,
            }
        }
    }

    /// Reads available bytes.
    fn read(&mut self) {
        let mut chunk = [0; 65536];
        while let Ok(n) = self.stream.read(&mut chunk) {
            if n == 0 {
                self.is_gone = true;
                return;
            }
            self.got.extend_from_slice(&chunk[..n]);
        }
    }

    /// Sends and reads until this number of messages of a type has arrived.
    fn until(&mut self, rig: &mut Rig, ty: u8, count: usize) {
        for _ in 0..100_000 {
            self.push(rig);
            self.read();
            if self.count(ty) >= count {
                return;
            }
            assert!(!self.is_gone, "{} of {count} messages of type {ty}", self.count(ty));
        }
        panic!("{} of {count} messages of type {ty}", self.count(ty));
    }

    fn count(&self, ty: u8) -> usize {
        let mut rest = &self.got[..];
        let mut found = 0;
        while rest.len() >= 8 {
            let len = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
            found += usize::from(rest[1] == ty);
            rest = &rest[len.min(rest.len())..];
        }
        found
    }
}

const PACKET_IN: u8 = 10;
const MULTIPART_REPLY: u8 = 19;
const BARRIER_REPLY: u8 = 21;

fn flow_mod(actions: Vec<Action>) -> Message {
    Message::FlowMod(FlowMod {
        format: Format::Standard,
        command: FlowModCommand::Add,
        table: flow::TableId(0),
        cookie: 0,
        cookie_mask: 0,
        new_cookie: 0,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: 1,
        buffer_id: NO_BUFFER,
        out_port: OfPort::NONE,
        out_group: GROUP_ANY,
        flags: FlowModFlags::empty(),
        importance: 0,
        matching: flow::Match::catchall().into(),
        actions,
    })
}

fn output(port: OfPort) -> Action {
    Action::Output(Output { port, max_len_bytes: u16::MAX })
}

fn encode(message: &Message) -> Vec<u8> {
    openflow::encode(message, VERSION, 7).unwrap()
}

/// Requests about a megabyte, in small replies and long ones.
fn ask_for_much(client: &mut Client) {
    for _ in 0..100 {
        client.unsent.extend(encode(&Message::DescRequest));
        client.unsent.extend(encode(&Message::EchoRequest(vec![b'x'; 10_000])));
    }
    client.unsent.extend(encode(&Message::BarrierRequest));
}

#[test]
fn many_who_read_slowly_have_little_made_ahead_and_get_everything() {
    let mut rig = Rig::new(Limits { input_bytes: 64 << 20, output_bytes: 4 << 20 });
    let mut clients: Vec<Client> = (0..50).map(|n| rig.connect(BRIDGES[n % 2])).collect();
    for client in &mut clients {
        ask_for_much(client);
    }
    for _ in 0..50 {
        clients.iter_mut().for_each(|c| c.push(&mut rig));
    }
    rig.settle();
    assert!(rig.most.1 > 2 << 20 && rig.most.1 < 7 << 19, "{:?}", rig.most);
    for client in &mut clients {
        client.until(&mut rig, BARRIER_REPLY, 1);
        assert_eq!(client.count(MULTIPART_REPLY), 100);
    }
    assert_eq!((rig.reactor.counts.cut_off, rig.links()), (0, 50));
    assert_eq!(rig.openflow.budgets.output.used_bytes(), 0);
}

#[test]
fn unread_output_of_all_bridges_is_bounded_before_it_is_made() {
    let limits = Limits { input_bytes: 64 << 20, output_bytes: 1 << 20 };
    let mut rig = Rig::new(limits);
    let mut reader = rig.connect("br1");
    let mut clients: Vec<Client> = (0..100).map(|n| rig.connect(BRIDGES[n % 2])).collect();
    for round in 0..8 {
        for client in &mut clients {
            ask_for_much(client);
            client.push(&mut rig);
        }
        // A client that reads is served throughout.
        reader.send(&mut rig, &Message::DescRequest);
        reader.until(&mut rig, MULTIPART_REPLY, round + 1);
    }
    rig.settle();
    assert!(rig.most.1 > 3 << 18 && rig.most.1 <= limits.output_bytes, "{:?}", rig.most);
    assert!(!rig.openflow.is_short());
    let cut_off = rig.reactor.counts.cut_off;
    assert!(cut_off > 20, "{cut_off}");
    assert_eq!(rig.links() as u64, 101 - cut_off);
    clients.iter_mut().for_each(Client::read);
    assert_eq!(clients.iter().filter(|c| c.is_gone).count() as u64, cut_off);
}

#[test]
fn half_sent_input_of_all_bridges_is_bounded_before_it_is_taken() {
    let limits = Limits { input_bytes: 4 << 20, output_bytes: 64 << 20 };
    let mut rig = Rig::new(limits);
    let log = rig.dir.path().join("log");
    vlog::vlog().open_file(&log).unwrap();
    vlog::vlog().set("connmgr:file:info").unwrap();
    vlog::vlog().set("ANY:console:off").unwrap();
    vlog::vlog().set_rate_limit(&["connmgr".to_string()], false).unwrap();
    let mut sane = rig.connect("br0");
    let mut clients: Vec<Client> = (0..100).map(|n| rig.connect(BRIDGES[n % 2])).collect();
    // Half of them send most of a message, the others fill bundles without a commit.
    let echo = encode(&Message::EchoRequest(vec![0; 65_000]));
    for (n, client) in clients.iter_mut().enumerate() {
        if n % 2 == 0 {
            client.unsent.extend(&echo[..60_000]);
        }
    }
    let part = encode(&Message::BundleAdd(BundleAdd {
        bundle_id: 1,
        flags: 3,
        message: Box::new(flow_mod(vec![output(OfPort(1)); 4000])),
    }));
    for round in 0..8 {
        for (n, client) in clients.iter_mut().enumerate() {
            if n % 2 == 1 {
                client.unsent.extend(&part);
            }
            client.push(&mut rig);
        }
        sane.send(&mut rig, &Message::BarrierRequest);
        sane.until(&mut rig, BARRIER_REPLY, round + 1);
    }
    rig.settle();
    assert!(rig.most.0 > 3 << 20 && rig.most.0 <= limits.input_bytes, "{:?}", rig.most);
    let cut_off = rig.reactor.counts.cut_off;
    assert!(cut_off > 20, "{cut_off}");
    assert_eq!(rig.links() as u64, 101 - cut_off);
    let text = std::fs::read_to_string(&log).unwrap();
    let why = "connection ended: all OpenFlow connections hold";
    assert!(
        text.contains(why) && text.contains("bytes of input that is not carried out, of 4194304"),
        "{text}"
    );
}

#[test]
fn packets_for_a_controller_arrive_all_within_few_turns() {
    const PACKETS: usize = 800;
    // Packet-ins of one turn exceed the queue of a controller: they are sent in portions.
    for bytes in [60, 120] {
        let mut rig = Rig::new(Limits { input_bytes: 64 << 20, output_bytes: 64 << 20 });
        let mut controller = rig.connect("br0");
        controller
            .send(&mut rig, &Message::SetConfig(SwitchConfig { flags: 0, miss_send_len_bytes: 0xffff }));
        controller.send(&mut rig, &flow_mod(vec![output(OfPort::CONTROLLER)]));
        controller.send(&mut rig, &Message::BarrierRequest);
        controller.until(&mut rig, BARRIER_REPLY, 1);
        // All sent bytes arrive before the switch's next turn.
        let mut senders: Vec<Client> = (0..4).map(|_| rig.connect("br0")).collect();
        for n in 0..PACKETS {
            let mut data = vec![0; bytes];
            data[6..8].copy_from_slice(&(n as u16).to_be_bytes());
            data[12..14].copy_from_slice(&[0x88, 0xb5]);
            let (buffer_id, in_port) = (NO_BUFFER, OfPort::CONTROLLER);
            let out = PacketOut {
                buffer_id,
                in_port,
                metadata: Box::default(),
                actions: vec![output(OfPort::TABLE)],
                data,
            };
            senders[n % 4].unsent.extend(encode(&Message::PacketOut(out)));
        }
        senders.iter_mut().for_each(Client::write);
        assert!(senders.iter().all(|s| s.unsent.is_empty()));
        // A turn for the input, two for its effects, and those that send the rest as it is read.
        let mut turns = 0;
        while controller.count(PACKET_IN) < PACKETS && turns < 6 {
            let _more = rig.turn();
            turns += 1;
            controller.read();
        }
        let counters = rig.openflow.counters();
        assert_eq!(
            (counters.packet_ins, counters.packet_ins_dropped),
            (PACKETS as u64, 0),
            "of {bytes} bytes"
        );
        assert_eq!(controller.count(PACKET_IN), PACKETS, "of {bytes} bytes, after {turns} turns");
    }
}
