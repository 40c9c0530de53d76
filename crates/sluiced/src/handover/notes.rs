//! [`Note`]: a line between the two processes of a handover: a word, then its fields, separated by tabs.
//!
//! A reader skips lines with an unknown word and fields beyond the known ones: those of a later version.

use super::entries::{self, GROUP, GROUP_GONE, number, put_group, put_meter};
use crate::link_protocols::SavedSession;
use crate::openflow::{BridgeText, LentClient};
use crate::routing::TunnelSettings;
use crate::switch::{GroupNote, MeterNote};
use dpif::EgressPorts;
use dpif_netdev::{LentPort, QueuePlace};
use flow::nlkey::{KeyLimits, key_to_bytes, parse_key};
use flow::{DpPort, FlowKey, MacAddr, Ufid};
use netdev::{LentKind, LentQueue};
use routing::{Hops, Neighbour, Prefix, Route};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use sys::channel::{Channel, MESSAGE_MAX_BYTES, MESSAGE_MAX_FDS, Message};

/// Begins a message of connections, whose rest is no text.
const CONNECTIONS: &str = "connections\t";
/// Word of the way to the holder of sockets.
const HOLDER: &str = "holder";
/// Room for connections in a message, beside the name of their datapath.
pub(super) const CONNECTIONS_ROOM: usize = MESSAGE_MAX_BYTES / 2;

/// Both VLAN tags of a key pass.
const VLAN_TAGS: u8 = 2;

/// See the module documentation.
#[derive(Debug)]
pub(super) enum Note {
    /// A datapath: its name, and the key of its hash functions.
    Datapath(String, u64),
    /// A port of the last datapath.
    Port(LentPort),
    /// The way to the holder of sockets.
    Holder(OwnedFd),
    /// The state file is followed from these bytes on. Ends the description of the switch.
    State(u64),
    /// The successor has the configuration, and has opened its ports.
    Ready,
    /// A flow of a datapath: its name, the number of its thread, the key of a packet.
    Flow(String, Ufid, u16, Box<FlowKey>),
    /// No more flows.
    FlowsEnd,
    /// The successor has its flows.
    Warm,
    /// Place of a queue of a datapath.
    Place(String, QueuePlace),
    /// The state of a session of a link protocol: its interface, its protocol, its text.
    Session(SavedSession),
    /// Connections of a datapath, as its tracker exports them.
    Connections(String, Vec<u8>),
    /// A listening socket, by its target.
    Listener(String, OwnedFd),
    /// The change: the state file has that many bytes.
    Change(u64),
    /// The successor forwards.
    Forwarding,
    /// State that controllers gave to a bridge.
    Bridge(BridgeText),
    /// Settings of tunnels by command.
    Tunnels(TunnelSettings),
    /// A route by command.
    Route(Box<Route>),
    /// A neighbour of tunnels.
    Neighbour(Neighbour),
    /// A meter of a bridge.
    Meter(MeterNote),
    /// A multicast group or router of a bridge.
    Group(GroupNote),
    /// An OpenFlow connection.
    Client(LentClient),
    /// It gives up, for this reason.
    Failed(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Datapath(name, hash_seed) => writeln!(f, "datapath\t{name}\t{hash_seed:016x}"),
            Note::Port(LentPort { name, type_name, number, queues }) => {
                writeln!(f, "port\t{name}\t{type_name}\t{}", number.0)?;
                queues.iter().try_for_each(|queue| writeln!(f, "queue\t{}", queue.kind))
            }
            Note::Holder(_) => writeln!(f, "{HOLDER}"),
            Note::State(bytes) => writeln!(f, "state\t{bytes}"),
            Note::Ready => writeln!(f, "ready"),
            Note::Flow(datapath, ufid, core, key) => {
                write!(f, "flow\t{datapath}\t{:032x}\t{core}\t", ufid.0)?;
                key_to_bytes(key, &KeyLimits::LINUX).iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                writeln!(f)
            }
            Note::FlowsEnd => writeln!(f, "flows-end"),
            Note::Warm => writeln!(f, "warm"),
            Note::Place(datapath, QueuePlace { port, queue, place }) => {
                writeln!(f, "place\t{datapath}\t{}\t{queue}\t{place}", port.0)
            }
            Note::Session(SavedSession { interface, protocol, text }) => {
                writeln!(f, "session\t{interface}\t{protocol}\t{text}")
            }
            Note::Connections(datapath, slice) => {
                writeln!(f, "{CONNECTIONS}{datapath}: {} bytes", slice.len())
            }
            Note::Listener(target, _) => writeln!(f, "listener\t{target}"),
            Note::Change(bytes) => writeln!(f, "change\t{bytes}"),
            Note::Forwarding => writeln!(f, "forwarding"),
            Note::Bridge(BridgeText { bridge, text }) => writeln!(f, "bridge\t{bridge}\t{text}"),
            Note::Client(LentClient { bridge, origin, text, .. }) => {
                writeln!(f, "client\t{bridge}\t{origin}\t{text}")
            }
            Note::Tunnels(TunnelSettings { aging_ms, retrans_ms, egress_ports }) => {
                let (first, last) = egress_ports.range();
                writeln!(f, "tunnels\t{aging_ms}\t{retrans_ms}\t{first}\t{last}")
            }
            Note::Route(route) => {
                let address = |ip: Option<IpAddr>| ip.map_or("-".to_string(), |ip| ip.to_string());
                let Route { table, mark, prefix, source, .. } = &**route;
                // A route by command has one hop.
                let hop = route.hops.first();
                let (device, gateway) = hop.map_or(("-", None), |hop| (&*hop.device, hop.gateway));
                let network = format!("{}\t{}", prefix.address(), prefix.len());
                let hop = format!("{device}\t{}", address(gateway));
                writeln!(f, "route\t{table}\t{mark}\t{network}\t{hop}\t{}", address(*source))
            }
            Note::Neighbour(Neighbour { bridge, ip, mac, left_ms, is_asked }) => {
                writeln!(f, "neighbour\t{bridge}\t{ip}\t{mac}\t{left_ms}\t{}", u8::from(*is_asked))
            }
            Note::Meter(meter) => put_meter(f, meter),
            Note::Group(group) => put_group(f, group),
            Note::Failed(why) => writeln!(f, "failed\t{}", why.replace(['\t', '\n'], " ")),
        }
    }
}

impl Note {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Note::Port(port) => port.queues.iter().flat_map(|queue| &queue.fds).map(AsFd::as_fd).collect(),
            Note::Listener(_, fd) | Note::Client(LentClient { fd, .. }) | Note::Holder(fd) => {
                vec![fd.as_fd()]
            }
            _ => Vec::new(),
        }
    }

    /// Reads a line; `Ok(None)` for an unknown word, `Err` for a malformed line.
    fn parse(line: &str) -> Result<Option<Note>, ()> {
        let mut fields = line.split('\t');
        let word = fields.next().unwrap_or_default();
        let mut text = || fields.next().filter(|text| !text.is_empty()).ok_or(());
        Ok(Some(match word {
            "datapath" => {
                let name = text()?.to_string();
                Note::Datapath(name, u64::from_str_radix(text()?, 16).map_err(drop)?)
            }
            "port" => {
                let (name, type_name) = (text()?.to_string(), text()?.to_string());
                Note::Port(LentPort { name, type_name, number: DpPort(number(text()?)?), queues: Vec::new() })
            }
            "state" => Note::State(number(text()?)?),
            "ready" => Note::Ready,
            "flow" => {
                let (datapath, ufid) = (text()?.to_string(), text()?);
                let ufid = Ufid(u128::from_str_radix(ufid, 16).map_err(drop)?);
                let core = number(text()?)?;
                let (key, _) = parse_key(&bytes_of(text()?).ok_or(())?, VLAN_TAGS).map_err(drop)?;
                Note::Flow(datapath, ufid, core, Box::new(key))
            }
            "session" => {
                let (interface, protocol) = (text()?.to_string(), text()?.to_string());
                Note::Session(SavedSession { interface, protocol, text: text()?.to_string() })
            }
            "flows-end" => Note::FlowsEnd,
            "warm" => Note::Warm,
            "place" => {
                let (datapath, port) = (text()?.to_string(), DpPort(number(text()?)?));
                Note::Place(datapath, QueuePlace { port, queue: number(text()?)?, place: number(text()?)? })
            }
            "change" => Note::Change(number(text()?)?),
            "forwarding" => Note::Forwarding,
            "bridge" => Note::Bridge(BridgeText { bridge: text()?.to_string(), text: text()?.to_string() }),
            "tunnels" => Note::Tunnels(TunnelSettings {
                aging_ms: number(text()?)?,
                retrans_ms: number(text()?)?,
                egress_ports: EgressPorts::new(number(text()?)?, number(text()?)?).ok_or(())?,
            }),
            "route" => {
                let (table, mark) = (number(text()?)?, number(text()?)?);
                let prefix = Prefix::new(number(text()?)?, number(text()?)?).ok_or(())?;
                let device = text()?.to_string();
                let address = |text: &str| if text == "-" { Ok(None) } else { number(text).map(Some) };
                let hops = Hops::one(&device, address(text()?)?);
                let source = address(text()?)?;
                Note::Route(Box::new(Route { table, mark, source, ..Route::new(prefix, hops) }))
            }
            "neighbour" => Note::Neighbour(Neighbour {
                bridge: text()?.to_string(),
                ip: number(text()?)?,
                mac: MacAddr::parse(text()?).ok_or(())?,
                left_ms: number(text()?)?,
                is_asked: text()? != "0",
            }),
            "meter" => Note::Meter(entries::meter(&mut text)?),
            "groups" => Note::Group(GroupNote { bridge: text()?.to_string(), entry: None }),
            GROUP | GROUP_GONE => Note::Group(entries::group(word, &mut text)?),
            "failed" => Note::Failed(text()?.to_string()),
            _ => return Ok(None),
        }))
    }
}

/// The name of a datapath and a slice of its connections, in a message of these alone.
fn connections(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let rest = bytes.strip_prefix(CONNECTIONS.as_bytes())?;
    let (name, slice) = rest.split_at(rest.iter().position(|byte| *byte == b'\n')?);
    Some((std::str::from_utf8(name).ok()?, &slice[1..]))
}

/// Sends a slice of connections of a datapath.
pub(super) fn send_connections(
    channel: &Channel,
    datapath: &str,
    slice: &[u8],
    limit: Duration,
) -> io::Result<()> {
    let head = format!("{CONNECTIONS}{datapath}\n");
    channel.send(&[head.as_bytes(), slice].concat(), &[], limit)
}

/// Bytes in hexadecimal.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits =
        text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok().filter(|p| p.len() == 2));
    digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// Reads the notes of a message.
///
/// # Errors
/// A line is malformed, or lacks its descriptor.
pub(super) fn read(message: Message) -> io::Result<Vec<Note>> {
    if let Some((datapath, slice)) = connections(&message.bytes) {
        return Ok(vec![Note::Connections(datapath.to_string(), slice.to_vec())]);
    }
    let bad = |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("malformed line \"{line}\""));
    let text = String::from_utf8(message.bytes).map_err(|e| bad(&e.to_string()))?;
    let mut fds = message.fds.into_iter();
    let mut notes: Vec<Note> = Vec::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("queue\t") {
            let kind = LentKind::parse(kind.split('\t').next().unwrap_or_default());
            let (Some(Note::Port(port)), Some(kind)) = (notes.last_mut(), kind) else {
                return Err(bad(line));
            };
            let fds: Vec<OwnedFd> = fds.by_ref().take(kind.descriptors()).collect();
            if fds.len() < kind.descriptors() {
                return Err(bad(line));
            }
            port.queues.push(LentQueue { kind, fds });
            continue;
        }
        if line.split('\t').next() == Some(HOLDER) {
            notes.push(Note::Holder(fds.next().ok_or_else(|| bad(line))?));
            continue;
        }
        if let Some(rest) = line.strip_prefix("listener\t") {
            let target = rest.split('\t').next().unwrap_or_default().to_string();
            notes.push(Note::Listener(target, fds.next().ok_or_else(|| bad(line))?));
            continue;
        }
        if let Some(rest) = line.strip_prefix("client\t") {
            let mut fields = rest.split('\t').map(str::to_string);
            let (Some(bridge), Some(origin), Some(text), Some(fd)) =
                (fields.next(), fields.next(), fields.next(), fds.next())
            else {
                return Err(bad(line));
            };
            notes.push(Note::Client(LentClient { bridge, origin, text, fd }));
            continue;
        }
        match Note::parse(line) {
            Ok(Some(note)) => notes.push(note),
            Ok(None) => log::info!(target: "handover", "a line of another version is skipped: {line}"),
            Err(()) => return Err(bad(line)),
        }
    }
    Ok(notes)
}

/// Gathers notes into messages.
pub(super) struct Sender<'a> {
    channel: &'a Channel,
    limit: Duration,
    text: String,
    fds: Vec<OwnedFd>,
}

impl<'a> Sender<'a> {
    pub(super) fn new(channel: &'a Channel, limit: Duration) -> Sender<'a> {
        Sender { channel, limit, text: String::new(), fds: Vec::new() }
    }

    /// Adds a note; sends those before it if the message is full.
    pub(super) fn add(&mut self, note: Note) -> io::Result<()> {
        let line = note.to_string();
        let fds = note.fds().len();
        if self.text.len() + line.len() > MESSAGE_MAX_BYTES || self.fds.len() + fds > MESSAGE_MAX_FDS {
            self.flush()?;
        }
        self.text += &line;
        match note {
            Note::Port(port) => self.fds.extend(port.queues.into_iter().flat_map(|queue| queue.fds)),
            Note::Listener(_, fd) | Note::Client(LentClient { fd, .. }) | Note::Holder(fd) => {
                self.fds.push(fd)
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends the rest.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.text.is_empty() {
            let fds: Vec<_> = self.fds.iter().map(AsFd::as_fd).collect();
            self.channel.send(self.text.as_bytes(), &fds, self.limit)?;
            (self.text, self.fds) = (String::new(), Vec::new());
        }
        Ok(())
    }
}

/// Sends one note.
pub(super) fn send(channel: &Channel, note: Note, limit: Duration) -> io::Result<()> {
    let mut sender = Sender::new(channel, limit);
    sender.add(note)?;
    sender.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn shown(notes: &[Note]) -> Vec<String> {
        notes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn notes_arrive_as_they_were_with_their_descriptors() {
        let (a, b) = Channel::pair().unwrap();
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let queue = |kind: &str| {
            let kind = LentKind::parse(kind).unwrap();
            LentQueue { kind, fds: (0..kind.descriptors()).map(|_| null()).collect() }
        };
        let mut key = FlowKey::default();
        key.base.in_port = 3;
        let port = |n: u32, queues| LentPort {
            name: format!("p{n}"),
            type_name: "system".to_string(),
            number: DpPort(n),
            queues,
        };
        let mut notes = vec![Note::Datapath("netdev@ovs-netdev".to_string(), 0xfedc_ba98_7654_3210)];
        for n in 0..200 {
            notes.push(Note::Port(port(n, vec![queue("growing 7 16390 1024 vnet_hdr"), queue("tap")])));
        }
        notes.extend([
            Note::Port(port(300, Vec::new())),
            Note::State(1 << 33),
            Note::Ready,
            Note::Flow("netdev@ovs-netdev".to_string(), Ufid(7 << 90), 5, Box::new(key)),
            Note::FlowsEnd,
            Note::Session(SavedSession {
                interface: "p1".to_string(),
                protocol: "bfd".to_string(),
                text: "{\"version\": 1}".to_string(),
            }),
            Note::Warm,
            Note::Place("x".to_string(), QueuePlace { port: DpPort(1), queue: 2, place: 3 }),
            Note::Holder(null()),
            Note::Listener("punix:/x/y".to_string(), null()),
            Note::Change(17),
            Note::Forwarding,
            Note::Bridge(BridgeText { bridge: "br0".to_string(), text: "{\"frags\": 0}".to_string() }),
            Note::Client(LentClient {
                bridge: "br0".to_string(),
                origin: "ptcp:6653:0.0.0.0".to_string(),
                text: "{\"version\": 4}".to_string(),
                fd: null(),
            }),
            Note::Tunnels(TunnelSettings {
                aging_ms: 900_000,
                retrans_ms: 1000,
                egress_ports: EgressPorts::new(1024, 60999).unwrap(),
            }),
            Note::Route(Box::new(Route {
                mark: 7,
                source: Some("10.0.0.1".parse().unwrap()),
                ..Route::new(Prefix::new("10.0.1.0".parse().unwrap(), 24).unwrap(), Hops::one("br0", None))
            })),
            Note::Route(Box::new(Route::new(
                Prefix::new("fd00::".parse().unwrap(), 64).unwrap(),
                Hops::one("br0", "fd01::1".parse().ok()),
            ))),
            Note::Neighbour(Neighbour {
                bridge: "br0".to_string(),
                ip: "fd00::1".parse().unwrap(),
                mac: MacAddr([2, 0, 0, 0, 0, 9]),
                left_ms: 17,
                is_asked: true,
            }),
            Note::Failed("two\twords\n".to_string()),
        ]);
        let sent = shown(&notes);
        let sending = std::thread::spawn(move || {
            let mut sender = Sender::new(&a, SOON);
            notes.into_iter().for_each(|note| sender.add(note).unwrap());
            sender.flush().unwrap();
        });
        let other = Channel::of(b);
        let mut received = Vec::new();
        while let Some(message) = other.receive(SOON).unwrap() {
            received.extend(read(message).unwrap());
        }
        sending.join().unwrap();
        assert_eq!(shown(&received), sent);
    }

    #[test]
    fn connections_pass_as_they_are() {
        let (a, b) = Channel::pair().unwrap();
        let slice: Vec<u8> = (0..CONNECTIONS_ROOM).map(|n| n as u8).collect();
        send_connections(&a, "netdev@x", &slice, SOON).unwrap();
        let notes = super::read(Channel::of(b).receive(SOON).unwrap().unwrap()).unwrap();
        assert!(
            matches!(&notes[..], [Note::Connections(name, bytes)] if name == "netdev@x" && *bytes == slice)
        );
    }

    #[test]
    fn a_later_version_is_skipped_and_a_malformed_line_refused() {
        let read = |text: &str| super::read(Message { bytes: text.as_bytes().to_vec(), fds: Vec::new() });
        let notes = read("later\t1\nready\tmore\nstate\t5\tmore\n").unwrap();
        assert_eq!(shown(&notes), ["ready\n", "state\t5\n"]);
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let later = ["listener\tpunix:x", "client\tbr0\tptcp:1\t{}", "port\tp1\ttap\t1", "queue\ttap"];
        let text = later.map(|line| format!("{line}\tmore\n")).concat().into_bytes();
        let fds = (0..3).map(|_| null.try_clone().unwrap()).collect();
        let notes = super::read(Message { bytes: text, fds }).unwrap();
        assert_eq!(shown(&notes).concat(), later.map(|line| format!("{line}\n")).concat());
        for text in [
            "state",
            "state\tx",
            "datapath\tx\tg",
            "port\tp",
            "queue\ttap",
            "listener\tx",
            "place\tx\t1\t2",
            "flow\td\t1\t0\t0",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
