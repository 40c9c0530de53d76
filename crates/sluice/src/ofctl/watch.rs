//! `monitor` and `snoop`: the messages of a switch as they come, on standard error as `ovs-ofctl` prints them.
//!
//! Memory is bounded by one message. Echo requests of the switch are answered; paused packets are resumed. The control
//! socket ([`super::control`]) stops them, sends messages, and chooses where to print.

use std::fs::File;
use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail};
use flow::text::token::Tokens;
use flow::text::{parse_match, parse_port, parse_table};
use flow::{OfPort, TableId};
use openflow::msg::flow_monitor::{FlowMonitorRequest, MonitorCommand, MonitorFlags};
use openflow::text::{Printing, format_message};
use openflow::{Format, GROUP_ANY, HEADER_BYTES, Message, Multi, Options as Wire, Version, decode_with};
use sys::poll::PollSet;
use sys::signals::Signals;

use super::background::{Process, Signalled};
use super::connection::{self, Frames, Names};
use super::control::{Control, Order, Ticket};
use super::flows::parse_packet_out;
use super::options::Options;
use super::parse::hex;
use super::{Run, switch};
use crate::hint::hint;
use crate::remote::{Deadline, print, reason};

/// `OFPC_INVALID_TTL_TO_CONTROLLER`.
const INVALID_TTL: u16 = 4;
/// Types of messages.
const HELLO: u8 = 0;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
/// Keywords of `watch:` besides fields.
const FLAGS: [(&str, MonitorFlags); 6] = [
    ("!initial", MonitorFlags::INITIAL),
    ("!add", MonitorFlags::ADD),
    ("!delete", MonitorFlags::DELETE),
    ("!modify", MonitorFlags::MODIFY),
    ("!actions", MonitorFlags::ACTIONS),
    ("!own", MonitorFlags::OWN),
];

/// `[!initial,][!add,]...[table=N,][out_port=PORT,][out_group=ID,][MATCH]`.
fn parse_watch(text: &str, names: &Names) -> Result<FlowMonitorRequest> {
    let mut request = FlowMonitorRequest {
        id: 0,
        command: MonitorCommand::Add,
        flags: MonitorFlags::all(),
        out_port: OfPort::NONE,
        out_group: GROUP_ANY,
        table: TableId::ALL,
        matching: Box::default(),
    };
    let mut fields = Vec::new();
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next_token().map_err(|e| anyhow!("{text}: {}", e.message()))? {
        let bad = || anyhow!("{text}: {}: invalid value of {}", token.value, token.key);
        match token.key {
            key if key.starts_with('!') => {
                let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == key) else {
                    bail!("{text}: {key}: unknown keyword{}", hint(key, FLAGS.iter().map(|(name, _)| *name)));
                };
                request.flags.remove(*flag);
            }
            "table" => {
                let unknown = || anyhow!("unknown table \"{}\"", token.value);
                request.table = parse_table(token.value, names).ok_or_else(unknown)?;
            }
            "out_port" => request.out_port = parse_port(token.value, names).ok_or_else(bad)?,
            "out_group" => request.out_group = token.value.parse().map_err(|_| bad())?,
            key if token.has_value() => fields.push(format!("{key}={}", token.value)),
            key => fields.push(key.to_string()),
        }
    }
    *request.matching = parse_match(&fields.join(","), names).map_err(|error| anyhow!("{text}: {error}"))?;
    Ok(request)
}

/// Arguments of `monitor`.
#[derive(Default)]
pub(super) struct Asked {
    miss_send_len_bytes: Option<u16>,
    invalid_ttl: bool,
    pub(super) monitors: Vec<FlowMonitorRequest>,
}

/// The arguments behind the bridge.
pub(super) fn parse(args: &[String], names: &Names) -> Result<Asked> {
    let mut asked = Asked::default();
    for arg in args {
        if arg.starts_with(|c: char| c.is_ascii_digit()) {
            let length = arg.parse().map_err(|_| anyhow!("{arg}: not a length of packets (0 to 65535)"))?;
            asked.miss_send_len_bytes = Some(length);
        } else if arg == "invalid_ttl" {
            asked.invalid_ttl = true;
        } else if let Some(text) = arg.strip_prefix("watch:") {
            asked.monitors.push(parse_watch(text, names)?);
        } else {
            let meant = hint(arg, ["invalid_ttl", "watch:"]);
            bail!("{arg}: unsupported \"monitor\" argument{meant}");
        }
    }
    Ok(asked)
}

/// The first form of packet-ins that the switch takes.
fn set_packet_in_format(run: &mut Run<'_>) -> Result<()> {
    if let Some(format) = run.options.packet_in {
        return run.connection.carry_out(&[Message::SetPacketInFormat(format)]);
    }
    // A switch without Nicira's forms sends those of the standard.
    let _taken = [2, 1, 0]
        .into_iter()
        .find(|format| run.connection.carry_out(&[Message::SetPacketInFormat(*format)]).is_ok());
    Ok(())
}

pub(super) fn monitor(options: &Options, args: &[String], process: &mut Process) -> Result<String> {
    let run = &mut Run::open(options, &args[0], "monitor")?;
    let asked = parse(&args[1..], &run.names)?;
    if asked.miss_send_len_bytes.is_some() || asked.invalid_ttl {
        let mut wanted = switch::config(&mut run.connection)?;
        if let Some(length) = asked.miss_send_len_bytes {
            wanted.miss_send_len_bytes = length;
        }
        if asked.invalid_ttl {
            if run.connection.version() >= Version::V13 {
                bail!("OpenFlow 1.3 and later has no invalid_ttl");
            }
            wanted.flags |= INVALID_TTL;
        }
        run.connection.carry_out(&[Message::SetConfig(wanted)])?;
    }
    for monitor in asked.monitors {
        let request = Message::FlowMonitorRequest(Multi::all(vec![monitor]));
        if run.options.more > 0 {
            let bytes =
                openflow::encode_with(&request, run.connection.version(), 0, run.connection.options());
            print(&run.text(&bytes.unwrap_or_default(), 2));
        }
        print(&run.dump(&request)?);
    }
    set_packet_in_format(run)?;
    let wire = run.connection.options().clone();
    let link = Link { version: run.connection.version(), xid: run.connection.next_xid(), last_xid: 0 };
    let printer = Printer { options: run.options, wire: &wire, names: &run.names, file: None };
    let frames = run.connection.take_frames()?;
    Loop::new(frames, printer, Some(link)).run(process)
}

/// Answers an echo request, and resumes a paused packet.
fn answer(frames: &mut Frames<'_>, frame: &[u8], version: Version, wire: &Wire) -> Result<()> {
    if frame.len() >= 8 && frame[1] == ECHO_REQUEST {
        let mut reply = frame.to_vec();
        reply[1] = ECHO_REPLY;
        return frames.send(&reply);
    }
    let Ok((_, _, Message::PacketIn(packet))) = decode_with(frame, wire) else { return Ok(()) };
    if packet.format != Format::Nxt2 || packet.continuation.is_empty() {
        return Ok(());
    }
    let bytes = openflow::encode_with(&Message::Resume(packet), version, 0, wire);
    frames.send(&bytes.map_err(|error| anyhow!("a paused packet cannot be resumed: {error}"))?)
}

/// Prints messages on the standard error, or into a file.
struct Printer<'a> {
    options: &'a Options,
    wire: &'a Wire,
    names: &'a Names,
    /// The file of `ofctl/set-output-file`.
    file: Option<File>,
}

impl Printer<'_> {
    /// Prints a message behind `head`.
    fn show(&mut self, head: &str, frame: &[u8]) -> Result<()> {
        self.show_with(head, frame, self.options.more.saturating_add(2))
    }

    fn show_with(&mut self, head: &str, frame: &[u8], verbosity: u8) -> Result<()> {
        let how = Printing { options: self.wire, names: self.names, verbosity };
        let text = format!("{head}{}", format_message(frame, how));
        match &mut self.file {
            Some(file) => file.write_all(text.as_bytes())?,
            None => {
                let mut out = io::stderr().lock();
                out.write_all(text.as_bytes())?;
                out.flush()?;
            }
        }
        Ok(())
    }
}

/// `YYYY-MM-DD HH:MM:SS.mmm: `, in UTC.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    vlog::date("%Y-%m-%d %H:%M:%S.###: ", now.as_millis() as u64)
}

/// The messages that a bridge and its controllers exchange; `BRIDGE.snoop` has copies of them, of all versions.
pub(super) fn snoop(options: &Options, args: &[String], process: &mut Process) -> Result<String> {
    let deadline = Deadline::after_s(options.timeout_s);
    let mut stream = connection::snoop(&args[0], &options.pki, deadline)?;
    let names = Names::default();
    let wire = Wire { table_id_in_command: true, ..Wire::DEFAULT };
    let printer = Printer { options, wire: &wire, names: &names, file: None };
    Loop::new(Frames::of(&mut stream, deadline), printer, None).run(process)
}

/// The side of `monitor` that sends.
struct Link {
    version: Version,
    /// Transaction id of the next message, and of the last one.
    xid: u32,
    last_xid: u32,
}

/// Prints messages as they come, answers those that need it, and carries out orders of the control socket.
struct Loop<'a> {
    frames: Frames<'a>,
    printer: Printer<'a>,
    /// `None` for `snoop`, whose connection carries no commands.
    link: Option<Link>,
    /// The greeting of a snooped connection has come.
    greeted: bool,
    /// `ofctl/block`: messages stay unread.
    blocked: bool,
    /// Request of a barrier that has no reply yet, and its transaction.
    barrier: Option<(Ticket, u32)>,
}

impl<'a> Loop<'a> {
    fn new(frames: Frames<'a>, printer: Printer<'a>, link: Option<Link>) -> Loop<'a> {
        Loop { frames, printer, greeted: link.is_some(), link, blocked: false, barrier: None }
    }

    /// Runs until `exit`, a signal, or the end of the connection.
    fn run(mut self, process: &mut Process) -> Result<String> {
        let mut control = process.control()?;
        let signals = Signals::hold().context("cannot install signal handlers")?;
        process.ready()?;
        loop {
            while !self.blocked
                && let Some(frame) = self.frames.buffered()
            {
                self.take(&frame, control.as_mut())?;
            }
            if let Some(signal) = signals.next()? {
                return Err(Signalled(signal).into());
            }
            while let Some((ticket, order)) = control.as_mut().and_then(Control::next_order) {
                let is_end = order == Order::Exit;
                if let (Some(answer), Some(control)) = (self.carry_out(order), control.as_mut()) {
                    control.answer(ticket, answer);
                } else if let Some(link) = &self.link {
                    self.barrier = Some((ticket, link.last_xid));
                }
                if is_end {
                    return Ok(String::new());
                }
            }
            let mut set = PollSet::new();
            set.add(signals.fd(), false);
            let stream = (!self.blocked).then(|| set.add(self.frames.fd(), false));
            control.iter().for_each(|control| control.wait_for(&mut set));
            set.wait(self.frames.time_left()?)?;
            if stream.is_some_and(|at| set.ready(at).readable) && !self.frames.fill()? {
                bail!("the switch closed the connection");
            }
        }
    }

    /// Prints a message and does what it asks for.
    fn take(&mut self, frame: &[u8], control: Option<&mut Control>) -> Result<()> {
        if !self.greeted && frame.get(1) == Some(&HELLO) {
            self.greeted = true;
            return Ok(());
        }
        let time = if self.printer.options.timestamp { now() } else { String::new() };
        self.printer.show(&time, frame)?;
        let Some(link) = &self.link else { return Ok(()) };
        answer(&mut self.frames, frame, link.version, self.printer.wire)?;
        let is_reply = frame.get(1) == Some(&barrier_reply(link.version));
        let waits = |(_, xid): &mut (Ticket, u32)| is_reply && frame.get(4..8) == Some(&xid.to_be_bytes());
        if let (Some((ticket, _)), Some(control)) = (self.barrier.take_if(waits), control) {
            control.answer(ticket, Ok(String::new()));
        }
        Ok(())
    }

    /// Carries out an order; `None`: it is answered later.
    fn carry_out(&mut self, order: Order) -> Option<Result<String, String>> {
        let done = Ok(String::new());
        Some(match order {
            Order::Exit => done,
            Order::Output(path) => match File::create(&path) {
                Ok(file) => {
                    self.printer.file = Some(file);
                    done
                }
                Err(error) => Err(reason(&error.into())),
            },
            Order::Block if self.blocked => Ok("already blocking".to_string()),
            Order::Unblock if !self.blocked => Ok("already unblocked".to_string()),
            Order::Block | Order::Unblock => {
                self.blocked = order == Order::Block;
                done
            }
            Order::Send(_) | Order::PacketOut(_) | Order::Barrier if self.link.is_none() => {
                Err("snoop: the switch takes no messages from this connection".to_string())
            }
            Order::Send(messages) => self.send_all(&messages),
            Order::PacketOut(text) => self.send_packet(&text),
            Order::Barrier if self.barrier.is_some() => Err("already waiting for barrier reply".to_string()),
            Order::Barrier => match self.send(&Message::BarrierRequest) {
                Ok(_) => return None,
                Err(why) => Err(why),
            },
        })
    }

    /// Messages in hexadecimal digits; a line of the answer for each.
    fn send_all(&mut self, messages: &[String]) -> Result<String, String> {
        let mut out = String::new();
        for text in messages {
            let bytes = hex(text).map_err(|_| format!("{out}Trailing garbage in hex data"))?;
            let Some(len) = bytes.get(2..4).filter(|_| bytes.len() >= HEADER_BYTES) else {
                return Err(format!("{out}Message too short for OpenFlow"));
            };
            if usize::from(u16::from_be_bytes([len[0], len[1]])) != bytes.len() {
                return Err(format!("{out}Message size does not match length in OpenFlow header"));
            }
            let sent = self.printer.show("send: ", &bytes).and_then(|()| self.frames.send(&bytes));
            sent.map_err(|error| format!("{out}{}", reason(&error)))?;
            out += "sent\n";
        }
        Ok(out)
    }

    fn send_packet(&mut self, text: &str) -> Result<String, String> {
        let out = parse_packet_out(text, self.printer.names).map_err(|error| format!("{error:#}"))?;
        let bytes = self.send(&Message::PacketOut(out))?;
        let verbosity = self.printer.options.more;
        self.printer.show_with("", &bytes, verbosity).map_err(|error| reason(&error))?;
        Ok(String::new())
    }

    /// Sends a message, and returns its bytes.
    fn send(&mut self, message: &Message) -> Result<Vec<u8>, String> {
        let Some(link) = &mut self.link else { return Ok(Vec::new()) };
        let bytes = openflow::encode_with(message, link.version, link.xid, self.printer.wire);
        let bytes = bytes.map_err(|error| error.to_string())?;
        (link.last_xid, link.xid) = (link.xid, link.xid.wrapping_add(1).max(1));
        self.frames.send(&bytes).map_err(|error| reason(&error))?;
        Ok(bytes)
    }
}

/// `OFPT_BARRIER_REPLY` of a version.
fn barrier_reply(version: Version) -> u8 {
    if version == Version::V10 { 19 } else { 21 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::fields::FieldId;

    #[test]
    fn monitors_are_parsed() {
        let watch = parse_watch("!initial,table=3,out_port=2,tcp,tp_dst=80", &Names::default()).unwrap();
        assert_eq!((watch.table, watch.out_port), (TableId(3), OfPort(2)));
        assert_eq!(watch.flags, MonitorFlags::all() - MonitorFlags::INITIAL);
        assert_eq!(watch.matching.get(FieldId::TcpDst).0, 80);
        for (bad, fault) in [
            ("!inital", "(did you mean '!initial'?)"),
            ("bogus", "bogus"),
            ("table=300", "unknown table \"300\""),
            ("out_port=zz", "invalid value of out_port"),
        ] {
            let error = parse_watch(bad, &Names::default()).unwrap_err().to_string();
            assert!(error.contains(fault), "{bad}: {error}");
        }
        assert!(parse(&["70000".to_string()], &Names::default()).is_err());
        let wrong = parse(&["invalid_tll".to_string()], &Names::default()).err().unwrap().to_string();
        assert!(wrong.contains("(did you mean 'invalid_ttl'?)"), "{wrong}");
    }
}
