//! Commands of the dummy mode: the clock, and frames and state of dummies.

use super::datapath::Names;
use super::routes::cidr;
use super::{Optional, Parsed, Reply, Rows, Several, Wait, Word, command};
use crate::control_plane::ControlPlane;
use crate::instances::Instance;
use dpif::text::{PortNames, parse_key_mask};
use flow::compose::frame_of_key;
use netdev::dummy::Dummy;
use std::sync::Arc;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "netdev-dummy/conn-state",
        Optional(Word("netdev")),
        "show the stream connections of dummies",
        conn_state,
    ),
    &command(
        "netdev-dummy/ip4addr",
        (Word("netdev"), Word("address/bits")),
        "add an IPv4 address to a dummy",
        ip4,
    ),
    &command(
        "netdev-dummy/ip6addr",
        (Word("netdev"), Word("address/bits")),
        "add an IPv6 address to a dummy",
        ip6,
    ),
    &command(
        "netdev-dummy/receive",
        (Word("name"), Several("[--qid queue] {packet | flow [--len bytes]}...", 1, 1023)),
        "receive packets on a dummy",
        receive,
    ),
    &command(
        "netdev-dummy/set-admin-state",
        (Optional(Word("netdev")), Parsed("up|down", is_up)),
        "set all dummies or one up or down",
        set_admin_state,
    ),
    &command("time/stop", (), "stop the clock of the switch", time_stop),
    &command(
        "time/warp",
        (Optional(Parsed("total_msecs", ms)), Parsed("msecs", ms)),
        "advance the stopped clock, in steps of some milliseconds",
        time_warp,
    ),
];

/// One step of the clock after another; after each, a pass of everything.
pub struct Warp {
    left_ms: u64,
    step_ms: u64,
}

impl Warp {
    /// Steps once more; `false` at the end.
    pub fn step(&mut self) -> bool {
        let step_ms = self.step_ms.min(self.left_ms);
        self.left_ms -= step_ms;
        sys::clock::warp_ms(step_ms);
        step_ms > 0
    }
}

fn time_stop(_: &mut ControlPlane, (): ()) -> Reply {
    sys::clock::stop();
    String::new().into()
}

/// A time above zero.
fn ms(text: &str) -> Result<u64, String> {
    let ms = text.parse::<u32>().ok().filter(|ms| *ms > 0);
    ms.map(u64::from).ok_or_else(|| "invalid MSECS".to_string())
}

fn time_warp(_: &mut ControlPlane, (total_ms, step_ms): (Option<u64>, u64)) -> Reply {
    let left_ms = total_ms.unwrap_or(step_ms);
    Reply::Later(Wait::Warp(Warp { left_ms, step_ms }, Vec::new()))
}

fn dummy(plane: &ControlPlane, name: &str) -> Option<Dummy> {
    plane.switch.instances().dummy_ports().get(name)
}

/// The datapath of a dummy.
fn owner<'a>(plane: &'a ControlPlane, name: &str) -> Option<&'a Instance> {
    let instances = plane.switch.instances();
    match plane.switch.devices().get(name) {
        Some(device) => instances.iter().find(|i| Arc::ptr_eq(&i.datapath, &device.datapath)),
        None => instances.all().into_iter().find(|i| i.datapath.ports().iter().any(|p| p.name == name)),
    }
}

/// `NAME [--qid N] {HEX | DATAPATH-FLOW [--len N]}...`
fn receive(plane: &mut ControlPlane, (name, words): (&str, Vec<&str>)) -> Reply {
    let received = || {
        let dummy = dummy(plane, name).ok_or("no such dummy netdev")?;
        let instance = owner(plane, name).ok_or("its datapath is gone")?;
        let (qid, frames) = match &words[..] {
            ["--qid", qid, rest @ ..] => {
                let qid = qid.parse().ok().filter(|q| *q < dummy.n_rxq()).ok_or("bad rx queue id.")?;
                (qid, rest)
            }
            rest => (0, rest),
        };
        if frames.is_empty() {
            return Err("give a packet, as hexadecimal bytes or as a datapath flow".to_string());
        }
        let mut frames = frames.iter();
        let mut all = Vec::new();
        while let Some(text) = frames.next() {
            all.push(match hexadecimal(text) {
                Some(bytes) => bytes,
                None => {
                    let len = match frames.as_slice() {
                        ["--len", len, ..] => Some(len.parse().ok()),
                        _ => None,
                    };
                    if len.is_some() {
                        frames.nth(1);
                    }
                    from_flow(&Names::of(instance), text, len)?
                }
            });
        }
        for frame in &all {
            dummy.receive(qid, frame).map_err(|e| e.to_string())?;
            // The queue holds few frames; the switch takes each before the next one arrives.
            instance.datapath.run_main();
        }
        Ok(String::new())
    };
    Reply::from(received())
}

/// Bytes of at least an Ethernet header.
pub(super) fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| match pair {
        [a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
            u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
        }
        _ => None,
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes.filter(|b| b.len() >= packet::headers::ETH_HEADER_BYTES)
}

/// The frame of a datapath flow, of `len` bytes if given.
pub(super) fn from_flow(
    names: &dyn PortNames,
    text: &str,
    len: Option<Option<usize>>,
) -> Result<Vec<u8>, String> {
    let (key, _) =
        parse_key_mask(&complete(text), names).map_err(|e| format!("syntax error at {text} ({e})"))?;
    let len = match len {
        None => None,
        Some(None) => return Err("--len needs a number of bytes".to_string()),
        Some(len) => len,
    };
    frame_of_key(&key, len).map_err(|e| e.to_string())
}

/// The text of a frame's flow. As in OVS, a flow of IP without EtherType has that of its addresses, and a bare packet
/// gets an Ethernet header.
fn complete(text: &str) -> String {
    let (before, typed) = text.split_once("packet_type(").unwrap_or((text, ""));
    let after = typed.split_once(')').map_or(typed, |(_, after)| after);
    let framed = format!("{before}{after}").replace(",,", ",").trim_start_matches(',').to_string();
    let ethertypes = [("eth_type(", ""), ("ipv4(", "eth_type(0x0800),"), ("ipv6(", "eth_type(0x86dd),")];
    let known = ethertypes.into_iter().find(|(part, _)| framed.contains(part));
    known.map_or("", |(_, missing)| missing).to_string() + &framed
}

fn add_address(plane: &mut ControlPlane, (netdev, address): (&str, &str), is_ipv4: bool) -> Reply {
    let add = || {
        let dummy = dummy(plane, netdev).ok_or("Unknown Dummy Interface")?;
        let (address, len) = cidr(address, is_ipv4)?;
        dummy.add_address(address, len).map_err(|e| e.to_string())
    };
    let added = add();
    // The next command may depend on it.
    plane.routing.follow_dummies(plane.switch.instances().dummy_ports());
    Reply::from(added.map(|()| "OK".to_string()))
}

fn ip4(plane: &mut ControlPlane, address: (&str, &str)) -> Reply {
    add_address(plane, address, true)
}

fn ip6(plane: &mut ControlPlane, address: (&str, &str)) -> Reply {
    add_address(plane, address, false)
}

/// `up` or `down`.
fn is_up(text: &str) -> Result<bool, String> {
    match text {
        "up" => Ok(true),
        "down" => Ok(false),
        _ => Err("Invalid Admin State".to_string()),
    }
}

fn set_admin_state(plane: &mut ControlPlane, (name, up): (Option<&str>, bool)) -> Reply {
    match name {
        None => plane.switch.instances().dummy_ports().all().iter().for_each(|d| d.set_admin_up(up)),
        Some(name) => match dummy(plane, name) {
            Some(d) => d.set_admin_up(up),
            None => return Reply::Error("Unknown Dummy Interface".to_string()),
        },
    }
    plane.switch.links_changed();
    "OK".to_string().into()
}

fn conn_state(plane: &mut ControlPlane, netdev: Option<&str>) -> Reply {
    let states = plane.switch.dummy_connections();
    let text = |up: bool| if up { "connected" } else { "disconnected" };
    match netdev {
        None => states.iter().map(|(name, up)| format!("{name}: {}\n", text(*up))).collect::<String>().into(),
        Some(name) => {
            let known = states.iter().find(|(known, _)| *known == name);
            format!("{name}: {}\n", known.map_or("unknown", |(_, up)| text(*up))).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::complete;

    /// OVS 3.5 receives the same frames for both texts.
    #[test]
    fn flows_of_frames_are_completed() {
        for (text, expected) in [
            ("in_port(1),ipv4(proto=6),tcp(src=1)", "eth_type(0x0800),in_port(1),ipv4(proto=6),tcp(src=1)"),
            ("eth(),ipv6(proto=17)", "eth_type(0x86dd),eth(),ipv6(proto=17)"),
            ("packet_type(ns=1,id=0x800),ipv4(proto=6)", "eth_type(0x0800),ipv4(proto=6)"),
            ("in_port(1),packet_type(ns=0,id=0),eth(),eth_type(0x806)", "in_port(1),eth(),eth_type(0x806)"),
            ("arp(op=1)", "arp(op=1)"),
        ] {
            assert_eq!(complete(text), expected);
        }
    }
}
